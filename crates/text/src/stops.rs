//! Stop strings, matched on text over any token boundary.

/// What one piece of text gives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StopOutput {
    /// Text that may be shown: it holds no stop string and no beginning of one.
    pub text: String,
    /// A stop string was met; everything from it on is cut, and later text is ignored.
    pub stopped: bool,
}

/// Watches for the first completed occurrence of any of several strings. Text is held back only as long as
/// it is a true prefix of one of them.
#[derive(Debug, Clone, Default)]
pub struct Stops {
    stops: Vec<String>,
    held: String,
    stopped: bool,
}

impl Stops {
    /// Empty strings are ignored: they would stop before the first character.
    pub fn new(stops: Vec<String>) -> Self {
        let stops = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        Stops { stops, held: String::new(), stopped: false }
    }

    /// Adds text, gives what may be shown.
    pub fn push(&mut self, text: &str) -> StopOutput {
        if self.stopped {
            return StopOutput { text: String::new(), stopped: true };
        }
        if self.stops.is_empty() {
            return StopOutput { text: text.to_string(), stopped: false };
        }
        self.held.push_str(text);
        // The match that ends first, so that the cut does not depend on how the text was cut into pieces.
        let ends = self.stops.iter().filter_map(|stop| Some((self.held.find(stop.as_str())?, stop.len())));
        if let Some((at, _)) = ends.min_by_key(|&(at, length)| (at + length, at)) {
            self.held.truncate(at);
            self.stopped = true;
            return StopOutput { text: std::mem::take(&mut self.held), stopped: true };
        }
        let keep = self.held.len() - self.longest_prefix_at_end();
        let rest = self.held.split_off(keep);
        StopOutput { text: std::mem::replace(&mut self.held, rest), stopped: false }
    }

    /// The stream is over: what was held is no stop string after all.
    pub fn finish(&mut self) -> StopOutput {
        StopOutput { text: std::mem::take(&mut self.held), stopped: self.stopped }
    }

    /// Whether a stop string was met.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Bytes at the end of the held text that begin a stop string.
    fn longest_prefix_at_end(&self) -> usize {
        let longest = |stop: &String| {
            let most = self.held.len().min(stop.len() - 1);
            (1..=most)
                .rev()
                .find(|&n| stop.is_char_boundary(n) && self.held.as_bytes().ends_with(&stop.as_bytes()[..n]))
        };
        self.stops.iter().filter_map(longest).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (Vec<String>, bool) {
        let mut watch = Stops::new(stops.iter().map(|s| s.to_string()).collect());
        let mut shown: Vec<String> = pieces.iter().map(|piece| watch.push(piece).text).collect();
        let end = watch.finish();
        shown.push(end.text);
        (shown, end.stopped)
    }

    #[test]
    fn the_beginning_of_a_stop_string_never_leaks() {
        let (shown, stopped) = run(&["DEFGHIJ"], &["DEF", "G", "HI", "J"]);
        assert_eq!(shown.concat(), "");
        assert!(stopped);
    }

    #[test]
    fn matched_over_token_edges_and_in_the_middle() {
        for (stops, pieces, want) in [
            (vec!["beta gamma"], vec!["alpha be", "ta ga", "mma delta"], "alpha "),
            (vec!["X"], vec!["abXc"], "ab"),
            (vec!["\nUser:"], vec!["hi", "\nUser", ":", " more"], "hi"),
            (vec!["late", "abc"], vec!["xxab", "c late"], "xx"),
            (vec!["aab"], vec!["aaa", "b"], "a"),
            (vec!["你好吗"], vec!["说你", "好", "吗"], "说"),
        ] {
            let (shown, stopped) = run(&stops, &pieces);
            assert_eq!(shown.concat(), want, "{stops:?}");
            assert!(stopped, "{stops:?}");
        }
    }

    #[test]
    fn only_true_prefixes_are_held_back() {
        let long = "0123456789012345678901234567890123456789";
        let (shown, stopped) = run(&[long, ""], &["hello", " 01", "x", " 0"]);
        assert_eq!(shown, ["hello", " ", "01x", " ", "0"]);
        assert!(!stopped);
    }

    /// Feeds `text` in pieces of the given numbers of characters, the rest at once.
    fn chunked(stops: &[String], text: &str, cuts: &[usize]) -> (String, bool) {
        let mut watch = Stops::new(stops.to_vec());
        let (mut shown, mut rest) = (String::new(), text);
        for &cut in cuts {
            let at = rest.char_indices().nth(cut).map_or(rest.len(), |(at, _)| at);
            shown.push_str(&watch.push(&rest[..at]).text);
            rest = &rest[at..];
        }
        shown.push_str(&watch.push(rest).text);
        shown.push_str(&watch.finish().text);
        (shown, watch.stopped())
    }

    proptest! {
        #[test]
        fn any_chunking_cuts_at_the_same_place(
            text in "[ab\u{e9}]{0,24}",
            stops in proptest::collection::vec("[ab\u{e9}]{1,4}", 1..3),
            cuts in proptest::collection::vec(1usize..4, 0..24),
        ) {
            let got = chunked(&stops, &text, &cuts);
            prop_assert_eq!(&got, &chunked(&stops, &text, &[]));
            prop_assert_eq!(&got, &chunked(&stops, &text, &[1; 24]));
            prop_assert!(stops.iter().all(|stop| !got.0.contains(stop.as_str())));
            prop_assert!(text.starts_with(&got.0));
            prop_assert_eq!(got.1, stops.iter().any(|stop| text.contains(stop.as_str())));
        }
    }
}
