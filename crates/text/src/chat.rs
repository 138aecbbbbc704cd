//! Conversations as clients send them (OpenAI's JSON).

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

/// Most messages of one conversation.
pub const MAX_MESSAGES: usize = 10_000;
/// Most tool definitions of one conversation.
pub const MAX_TOOLS: usize = 1_000;
/// Most bytes of text and numbers in messages, tools and template arguments together.
pub const MAX_CHAT_BYTES: usize = 64 << 20;
/// Deepest nesting of arrays and objects inside messages and tools.
pub const MAX_CHAT_DEPTH: usize = 120;

/// One message. Fields that are not known are kept and given to the template.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `developer`, `user`, `assistant`, `tool`, …: the template decides what it accepts.
    pub role: String,
    /// `None`: the field is absent.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    /// The thought before an assistant's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Calls that an assistant made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Vec<ToolCall>>,
    /// Which call a `tool` message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Name of the speaker or the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// All other fields.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Message {
    /// A message with text and nothing else.
    pub fn text(role: &str, content: impl Into<String>) -> Self {
        Message { role: role.into(), content: Some(Content::Text(content.into())), ..Default::default() }
    }
}

/// Content of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// JSON `null`.
    Null,
    /// A string.
    Text(String),
    /// A list of parts; text parts are concatenated, others are refused when the conversation is rendered.
    Parts(Vec<Value>),
}

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Content::Null => serializer.serialize_unit(),
            Content::Text(text) => serializer.serialize_str(text),
            Content::Parts(parts) => parts.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Null => Ok(Content::Null),
            Value::String(text) => Ok(Content::Text(text)),
            Value::Array(parts) => Ok(Content::Parts(parts)),
            _ => Err(de::Error::custom("content must be a string, null or a list of parts")),
        }
    }
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Content>, D::Error> {
    Content::deserialize(deserializer).map(Some)
}

/// A call in an assistant message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Name by which the answer refers to the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `function`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What is called.
    pub function: FunctionCall,
    /// All other fields.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Name and arguments of a call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// Name of the function.
    pub name: String,
    /// A JSON object, or a string that holds one (OpenAI's way).
    #[serde(default)]
    pub arguments: Value,
    /// All other fields.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A tool definition, with every field in the order it was sent: templates print it as it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tool(pub Map<String, Value>);

impl Tool {
    /// The function's name, also where the definition is not wrapped in `function`.
    pub fn name(&self) -> Option<&str> {
        self.function().get("name")?.as_str()
    }

    /// The schema of the arguments.
    pub fn parameters(&self) -> Option<&Value> {
        self.function().get("parameters")
    }

    fn function(&self) -> &Map<String, Value> {
        self.0.get("function").and_then(Value::as_object).unwrap_or(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn null_absent_text_and_parts_are_told_apart() {
        let content = |json: Value| serde_json::from_value::<Message>(json).unwrap().content;
        assert_eq!(content(json!({"role": "user"})), None);
        assert_eq!(content(json!({"role": "user", "content": null})), Some(Content::Null));
        assert_eq!(content(json!({"role": "user", "content": "x"})), Some(Content::Text("x".into())));
        let parts = json!([{"type": "text", "text": "x"}]);
        let message = json!({"role": "user", "content": parts});
        assert_eq!(content(message), Some(Content::Parts(parts.as_array().unwrap().clone())));
        let fault = serde_json::from_value::<Message>(json!({"role": "user", "content": 3})).unwrap_err();
        assert!(fault.to_string().contains("content must be"), "{fault}");
    }

    #[test]
    fn messages_and_tools_survive_a_round_trip() {
        let message = json!({"role": "assistant", "content": null, "reasoning_content": "r",
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            "prefix": true});
        let parsed: Message = serde_json::from_value(message.clone()).unwrap();
        assert_eq!(serde_json::to_value(&parsed).unwrap(), message);
        let tool = json!({"type": "function", "function": {"name": "f", "z": 1, "parameters": {"a": {}}}});
        let parsed: Tool = serde_json::from_value(tool.clone()).unwrap();
        assert_eq!(parsed.name(), Some("f"));
        assert_eq!(parsed.parameters(), Some(&json!({"a": {}})));
        assert_eq!(serde_json::to_string(&parsed).unwrap(), tool.to_string());
    }
}
