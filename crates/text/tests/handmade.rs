//! Tokenizer folders, templates and whole answers made by hand: what a clone without test data checks.

mod common;

use std::sync::Arc;

use base::FileFault;
use proptest::prelude::*;
use serde_json::{Value, json};
use text::chat::Message;
use text::pipeline::{FinishReason, Options, Output};
use text::tools::{Event, Grammar, ToolCall};
use text::{Conversation, Specials, Template, Tokenizer};

const ADDED: [(&str, bool); 5] =
    [("<|im_start|>", true), ("<|im_end|>", true), ("<s>", true), ("<think>", false), ("</think>", false)];

const CHAT: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}\
{# <tool_call> {\"name\": } </think> #}";

fn folder(files: &[(&str, Value)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let text = content.as_str().map_or_else(|| content.to_string(), str::to_string);
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn tokenizer() -> Tokenizer {
    let folder = folder(&[
        ("tokenizer.json", common::byte_tokenizer(&ADDED)),
        ("tokenizer_config.json", json!({"eos_token": {"content": "<s>"}, "chat_template": CHAT})),
    ]);
    Tokenizer::open(folder.path()).unwrap()
}

fn template(source: &str) -> Template {
    let spellings = vec!["<|im_end|>".to_string(), "<é>".to_string(), "<s>".to_string()];
    let variables = vec![("eos_token".to_string(), "<|im_end|>".to_string())];
    Template::new(source, &Specials { spellings, variables }).unwrap().with_clock(Arc::new(|| 1_768_480_496))
}

fn chat(messages: Value) -> Conversation {
    Conversation { messages: serde_json::from_value(messages).unwrap(), ..Conversation::default() }
}

fn rendered(source: &str, content: &str) -> String {
    template(source).render(&chat(json!([{"role": "user", "content": content}]))).unwrap().text
}

fn refusal(source: &str, conversation: &Conversation) -> String {
    template(source).render(conversation).unwrap_err().to_string()
}

#[test]
fn a_folder_is_read_and_its_end_tokens_found() {
    let tokenizer = tokenizer();
    assert_eq!(tokenizer.vocab_size(), 261);
    // The config's eos_token, and what the template puts behind an assistant's words.
    assert_eq!(tokenizer.eos_ids(), [257, 258]);
    let prompt = tokenizer.template().unwrap().render(&chat(json!([{"role": "user", "content": "<s>é"}])));
    let ids = tokenizer.encode_prompt(&prompt.unwrap()).unwrap();
    let special: Vec<u32> = ids.iter().copied().filter(|&id| tokenizer.is_special(id)).collect();
    assert_eq!(special, [256, 257]);
    let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id).to_vec()).collect();
    assert_eq!(String::from_utf8(bytes).unwrap(), "<|im_start|>user\n<s>é<|im_end|>\n");
}

#[test]
fn the_template_file_wins_and_generation_config_adds_end_tokens() {
    let files = [
        ("tokenizer.json", common::byte_tokenizer(&ADDED)),
        ("tokenizer_config.json", json!({"chat_template": [{"name": "default", "template": "config"}]})),
        ("generation_config.json", json!({"eos_token_id": [258, 99999999, -1, "x"]})),
        ("chat_template.jinja", json!("file")),
    ];
    let render = |count: usize| {
        let folder = folder(&files[..count]);
        let tokenizer = Tokenizer::open(folder.path()).unwrap();
        let prompt = tokenizer.template().map(|template| template.render(&chat(json!([]))).unwrap().text);
        (prompt.ok(), tokenizer.eos_ids())
    };
    assert_eq!(render(1), (None, vec![]));
    assert_eq!(render(2), (Some("config".into()), vec![]));
    assert_eq!(render(4), (Some("file".into()), vec![258]));
}

#[test]
fn a_template_for_tools_is_used_with_tools() {
    let config = json!({"chat_template": [
        {"name": "tool_use", "template": "tools"}, {"name": "default", "template": "default"}]});
    let folder =
        folder(&[("tokenizer.json", common::byte_tokenizer(&ADDED)), ("tokenizer_config.json", config)]);
    let tokenizer = Tokenizer::open(folder.path()).unwrap();
    let template = tokenizer.template().unwrap();
    let render = |tools| template.render(&Conversation { tools, ..chat(json!([])) }).unwrap().text;
    assert_eq!((render(None).as_str(), render(Some(vec![])).as_str()), ("default", "tools"));
    assert_eq!((template.source(false), template.source(true)), ("default", "tools"));
}

#[test]
fn damaged_folders_are_named() {
    let good = || common::byte_tokenizer(&ADDED);
    let with = |pointer: &str, value: Value| {
        let mut json = good();
        *json.pointer_mut(pointer).unwrap() = value;
        json
    };
    let open = |files: &[(&str, Value)]| Tokenizer::open(folder(files).path()).unwrap_err();
    assert!(open(&[]).to_string().contains("tokenizer.json"));
    let mut huge = with("/model/vocab", json!({"a": 4000000000u32}));
    huge["added_tokens"] = json!([]);
    for (json, words) in [
        (json!("{\"model\""), "can't be parsed"),
        (json!({"model": {"type": "Nonsense"}}), "decoder none"),
        (huge, "token ids up to"),
        (with("/model/merges", json!(["a b"])), "can't be parsed"),
        (with("/added_tokens/0/id", json!(u32::MAX)), "id 4294967295"),
        (with("/decoder", json!({"type": "WordPiece", "prefix": "##", "cleanup": true})), "WordPiece"),
        (
            with(
                "/pre_tokenizer",
                json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}),
            ),
            "first",
        ),
        (with("/model", json!({"type": "BPE", "dropout": 0.5, "vocab": {}, "merges": []})), "dropout"),
    ] {
        let fault = open(&[("tokenizer.json", json)]).to_string();
        assert!(fault.contains(words), "{fault}, not {words}");
    }
    let config = |config: Value| open(&[("tokenizer.json", good()), ("tokenizer_config.json", config)]);
    assert_eq!(config(json!("[")).fault(), Some(FileFault::BadText));
    assert_eq!(config(json!({"added_tokens_decoder": {"x": {}}})).fault(), Some(FileFault::BadText));
    assert!(config(json!({"chat_template": "{% if %}"})).to_string().contains("chat:1"));
    assert!(config(json!({"chat_template": 3})).to_string().contains("chat_template"));
    let moved = json!({"content": "<s>", "special": true, "lstrip": false, "rstrip": false,
        "single_word": false, "normalized": false});
    let fault = config(json!({"added_tokens_decoder": {"12": moved}})).to_string();
    assert!(fault.contains("id 12"), "{fault}");
}

#[test]
fn values_are_printed_as_python_prints_them() {
    for (source, want) in [
        ("{{ none }} {{ true }} {{ [1, 'a', none] }}", "None True [1, 'a', None]"),
        ("{{ 1.0 }} {{ 1e20 }} {{ 0.00001 }}", "1.0 1e+20 1e-05"),
        ("{{ {'b': 1, 'a': [1.5, 'é<&\"']} | tojson }}", "{\"b\": 1, \"a\": [1.5, \"é<&\\\"\"]}"),
        ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}", "{\"a\":2,\"b\":1}"),
        (
            "{{ {'a': [1, {}], 'b': []} | tojson(indent=2) }}",
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}",
        ),
        ("{{ 'é😀\\n' | tojson(ensure_ascii=True) }}", "\"\\u00e9\\ud83d\\ude00\\n\""),
        ("{{ 'é' | tojson(ensure_ascii=False) }}", "\"é\""),
        ("{{ strftime_now('%d %b %Y') }}", "15 Jan 2026"),
        ("{% generation %}a{% endgeneration %}{%- generation -%} b {%- endgeneration -%} c", "abc"),
        ("{{ none is iterable }} {{ 3 is iterable }} {{ 'a' is iterable }}", "False False True"),
        ("{% for i in [0, 1, 2] %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "02"),
        ("{% for i in [0, 1, 2] %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}", "0"),
        (
            "{% set n = namespace(x=1) %}{% for i in [1, 2] %}{% set n.x = n.x + i %}{% endfor %}{{ n.x }}",
            "4",
        ),
        ("a\n{% if true %}\n  b\n{% endif %}\nc\n", "a\n  b\nc"),
        (
            "{{ ' x '.strip() }}{{ 'a,b'.split(',')[-1] }}{{ 'ab'.startswith('a') }}{{ eos_token }}",
            "xbTrue<|im_end|>",
        ),
    ] {
        assert_eq!(rendered(source, ""), want, "{source}");
    }
}

#[test]
fn guarded_content_survives_string_methods_and_json() {
    let content = " <|im_end|> <é> <s> \u{F0000}\" ";
    let source = "{{ messages[0].content.strip() }}{{ messages[0].content | trim | upper }}\
{{ messages[0].content.split(' ') | tojson }}{{ messages[0].content | tojson(ensure_ascii=true) }}<|im_end|>";
    let prompt = template(source).render(&chat(json!([{"role": "user", "content": content}]))).unwrap();
    assert!(prompt.text.starts_with("<|im_end|> <é> <s> \u{F0000}\"<|IM_END|> <é> <s>"), "{}", prompt.text);
    assert!(
        prompt.text.contains("[\"\", \"<|im_end|>\", \"<é>\", \"<s>\", \"\u{F0000}\\\"\", \"\"]"),
        "{}",
        prompt.text
    );
    assert!(prompt.text.contains("\" <|im_end|> <\\u00e9> <s> \\udb80\\udc00\\\" \""), "{}", prompt.text);
    let genuine = prompt.text.rfind("<|im_end|>").unwrap();
    let touches = |at: usize, length: usize| {
        prompt.guarded.iter().any(|range| range.start < at + length && at < range.end)
    };
    for spelling in ["<|im_end|>", "<é>", "<s>"] {
        for (at, _) in prompt.text.match_indices(spelling) {
            assert_eq!(touches(at, spelling.len()), at != genuine, "{spelling} at {at}");
        }
    }
}

#[test]
fn templates_refuse_in_their_own_words_and_are_stopped_when_they_run_away() {
    let one = chat(json!([{"role": "user", "content": "x"}]));
    assert!(
        refusal("{{ raise_exception('Roles must alternate!') }}", &one).contains("Roles must alternate!")
    );
    assert!(refusal("{{ messages[7].role }}", &one).contains("chat:1"));
    let lines = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
    assert!(refusal(lines, &one).contains("fuel"));
    let doubling =
        "{% set ns = namespace(x='ab') %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}";
    assert!(refusal(doubling, &one).contains("fuel"));
    assert!(refusal("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", &one).contains("recursion"));
    let fault = Template::new("{% if %}", &Specials::default()).unwrap_err().to_string();
    assert!(fault.contains("chat template"), "{fault}");
}

#[test]
fn unusual_conversations_are_refused_by_field() {
    let many = Conversation { messages: vec![Message::text("user", ""); 10_001], ..Default::default() };
    assert!(refusal("", &many).starts_with("messages: 10001"));
    let own = Conversation { extra: json!({"messages": []}).as_object().unwrap().clone(), ..chat(json!([])) };
    assert!(refusal("", &own).starts_with("chat_template_kwargs: messages"));
    let open = Conversation { continue_final: true, ..chat(json!([])) };
    assert!(refusal("", &open).starts_with("continue_final_message"));
    let open = Conversation { continue_final: true, ..chat(json!([{"role": "assistant", "content": "a "}])) };
    assert!(refusal("nothing", &open).starts_with("continue_final_message"));
    let text = |source: &str| template(source).render(&open).unwrap().text;
    assert_eq!(text("<{{ messages[0].content }}>"), "<a ");
    assert_eq!(text("<{{ messages[0].content.strip() }}>"), "<a");
}

/// Joined answer text, joined reasoning and calls.
fn read(
    tokenizer: &Tokenizer,
    options: Options,
    ids: &[u32],
) -> (String, String, Vec<ToolCall>, FinishReason) {
    let mut output = Output::new(tokenizer, options);
    let mut events: Vec<Event> = Vec::new();
    for &id in ids {
        events.extend(output.push(id));
        if output.ended() {
            break;
        }
    }
    events.extend(output.finish());
    let (mut text, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    for event in events {
        match event {
            Event::Text(more) => text.push_str(&more),
            Event::Reasoning(more) => reasoning.push_str(&more),
            Event::ToolCall(call) => calls.push(call),
        }
    }
    (text, reasoning, calls, output.finish_reason())
}

fn all_on(tokenizer: &Tokenizer, stops: &[&str]) -> Options {
    Options {
        reasoning: Some(false),
        grammar: Some(Grammar::Hermes),
        ..Options::plain(tokenizer).with_stops(stops.iter().map(|stop| stop.to_string()).collect())
    }
}

#[test]
fn every_path_cuts_at_the_same_place() {
    let tokenizer = tokenizer();
    for (stops, whole, want) in [
        (vec!["X"], "abXc", "ab"),
        (vec!["\nUser:"], "hi\nUser: more", "hi"),
        (vec!["beta gamma", "never"], "alpha beta gamma delta", "alpha "),
        (vec!["0123456789012345678901234567890123456789"], "ends 0123", "ends 0123"),
        (vec!["😀!"], "é😀😀!x", "é😀"),
    ] {
        let ids = tokenizer.encode(whole).unwrap();
        let stop_list = stops.iter().map(|stop| stop.to_string()).collect::<Vec<_>>();
        let plain = read(&tokenizer, Options::plain(&tokenizer).with_stops(stop_list), &ids);
        let full = read(&tokenizer, all_on(&tokenizer, &stops), &ids);
        assert_eq!(plain.0, want);
        assert_eq!(full, plain);
        assert_eq!(plain.3, if want == whole { FinishReason::Length } else { FinishReason::Stop });
    }
}

#[test]
fn an_answer_with_thought_call_and_end_token() {
    let tokenizer = tokenizer();
    let body = "{\"name\": \"f\", \"arguments\": {\"a\": \"é\"}}";
    let answer = &format!("<think>\nhm\n</think>\n\nHi\n<tool_call>{body}</tool_call>");
    let mut ids = tokenizer.encode(answer).unwrap();
    ids.extend([257, 64, 65]);
    let call = ToolCall { name: "f".into(), arguments: "{\"a\": \"é\"}".into() };
    let want = ("Hi".to_string(), "hm".to_string(), vec![call], FinishReason::ToolCalls);
    assert_eq!(read(&tokenizer, all_on(&tokenizer, &[]), &ids), want);
    let cut = read(&tokenizer, all_on(&tokenizer, &["é"]), &ids);
    assert_eq!(cut.0, "Hi\n<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"");
    assert_eq!((cut.2, cut.3), (vec![], FinishReason::Stop));
}

#[test]
fn options_follow_the_template() {
    let tokenizer = tokenizer();
    let prompt = tokenizer.template().unwrap().render(&chat(json!([]))).unwrap();
    let tool = serde_json::from_value(json!({"name": "f"})).unwrap();
    let options = Options::chat(&tokenizer, &prompt, &[tool]).unwrap();
    assert_eq!((options.reasoning, options.grammar), (Some(false), Some(Grammar::Hermes)));
    assert_eq!(Options::chat(&tokenizer, &prompt, &[]).unwrap().grammar, None);
}

#[test]
fn tokenizers_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Tokenizer>();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]
    #[test]
    fn any_ids_are_read_without_loss_or_panic(ids in proptest::collection::vec(0u32..300, 0..64)) {
        thread_local!(static SHARED: Tokenizer = tokenizer());
        SHARED.with(|tokenizer| {
            let options = Options { eos: Vec::new(), ..Options::plain(tokenizer) };
            let bytes = |id: &u32| if tokenizer.is_special(*id) { &[] } else { tokenizer.token_bytes(*id) };
            let want: Vec<u8> = ids.iter().flat_map(bytes).copied().collect();
            let (text, ..) = read(tokenizer, options, &ids);
            prop_assert_eq!(text, String::from_utf8_lossy(&want));
            read(tokenizer, all_on(tokenizer, &["ab"]), &ids);
            Ok(())
        })?;
    }
}
