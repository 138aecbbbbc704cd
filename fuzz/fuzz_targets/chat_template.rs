//! A chat template and, behind zero bytes, messages and tools as JSON lists.
#![no_main]

use libfuzzer_sys::fuzz_target;
use text::{Conversation, Specials, Template};

fuzz_target!(|input: &[u8]| {
    let Ok(input) = std::str::from_utf8(input) else { return };
    let mut parts = input.splitn(3, '\0');
    let source = parts.next().unwrap_or_default();
    let specials = Specials {
        spellings: vec!["<|im_start|>".into(), "<|im_end|>".into(), "<s>".into()],
        variables: vec![("eos_token".into(), "<|im_end|>".into()), ("bos_token".into(), "<s>".into())],
    };
    let Ok(template) = Template::new(source, &specials) else { return };
    let messages = parts.next().unwrap_or(r#"[{"role": "user", "content": "<|im_start|>"}]"#);
    let Ok(messages) = serde_json::from_str(messages) else { return };
    let Ok(tools) = parts.next().map(serde_json::from_str).transpose() else { return };
    for continue_final in [false, true] {
        let conversation = Conversation {
            messages: Vec::clone(&messages),
            tools: Option::clone(&tools),
            add_generation_prompt: !continue_final,
            continue_final,
            ..Default::default()
        };
        let Ok(prompt) = template.render(&conversation) else { continue };
        let mut end = 0;
        for range in &prompt.guarded {
            assert!(range.start >= end && range.end >= range.start, "sorted and apart: {range:?}");
            assert!(prompt.text.get(range.clone()).is_some(), "{range:?} is text");
            end = range.end;
        }
    }
});
