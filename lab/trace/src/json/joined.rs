//! Objects that go on over several lines, as `jq .` prints a log, made into one line each.

/// Bytes of an object that are kept; a longer one is bad.
const OBJECT_BYTES_MAX: usize = crate::window::LINE_BYTES_MAX;

/// What lines have come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// The line is nothing but the brackets of an array of objects.
    Nothing,
    /// An object has begun, and is not at its end.
    Going,
    /// The line is an object, or whatever else has no end to wait for.
    Line,
    /// The object in [`Joiner::object`] is at its end.
    Object,
    /// The object in [`Joiner::object`] never ends: another one begins, in this line, or it is too
    /// long. The line is to be looked at again.
    Broken,
}

/// Follows the lines of one log.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    object: Vec<u8>,
    depth: usize,
    is_in_text: bool,
    is_at_end: bool,
}

impl Joiner {
    /// What a line is. It is taken whole, with the spaces at its beginning.
    pub(crate) fn push(&mut self, line: &[u8]) -> Joined {
        if std::mem::take(&mut self.is_at_end) {
            self.clear();
        }
        let trimmed = line.trim_ascii();
        if self.depth == 0 {
            match trimmed {
                b"[" | b"]" | b"," | b"]," => return Joined::Nothing,
                [b'{', ..] => {}
                _ => return Joined::Line,
            }
            self.follow(trimmed);
            if self.depth == 0 {
                self.clear();
                return Joined::Line;
            }
        } else {
            // In an object that goes on no line begins with another one, unless it is farther in.
            if line.first() == Some(&b'{') || self.object.len() + trimmed.len() >= OBJECT_BYTES_MAX
            {
                self.depth = 0;
                self.is_at_end = true;
                return Joined::Broken;
            }
            self.follow(trimmed);
        }
        self.object.extend_from_slice(trimmed);
        self.object.push(b' ');
        if self.depth > 0 {
            return Joined::Going;
        }
        self.is_at_end = true;
        Joined::Object
    }

    /// Whether no object goes on.
    pub(crate) fn is_idle(&self) -> bool {
        self.depth == 0
    }

    /// What there is of an object when the log ends.
    pub(crate) fn rest(&self) -> Option<&[u8]> {
        (self.depth > 0).then_some(&self.object[..])
    }

    /// The object, in one line.
    pub(crate) fn object(&self) -> &[u8] {
        let object = self.object.trim_ascii_end();
        object.strip_suffix(b",").unwrap_or(object)
    }

    fn clear(&mut self) {
        self.object.clear();
        self.depth = 0;
        self.is_in_text = false;
    }

    fn follow(&mut self, line: &[u8]) {
        let mut is_escaped = false;
        for &byte in line {
            if self.is_in_text {
                match byte {
                    _ if is_escaped => is_escaped = false,
                    b'\\' => is_escaped = true,
                    b'"' => self.is_in_text = false,
                    _ => {}
                }
            } else {
                match byte {
                    b'"' => self.is_in_text = true,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                    _ => {}
                }
            }
        }
        // No text goes on in the next line: what is open here was cut off.
        self.is_in_text = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(text: &str) -> Vec<(Joined, String)> {
        let mut joiner = Joiner::default();
        let push = |line: &str| {
            let joined = joiner.push(line.as_bytes());
            let has_object = matches!(joined, Joined::Object | Joined::Broken);
            (
                joined,
                if has_object {
                    String::from_utf8(joiner.object().to_vec()).unwrap()
                } else {
                    String::new()
                },
            )
        };
        text.split('\n')
            .map(push)
            .filter(|(joined, _)| !matches!(joined, Joined::Going | Joined::Nothing))
            .collect()
    }

    #[test]
    fn an_array_of_objects() {
        let got = joined(
            "[\n  {\n    \"a\": \"}{\\\"\",\n    \"b\": {\n      \"c\": [\n        1\n      ]\n    }\n  },\n  {\n    \"a\": 2\n  }\n]",
        );
        let expected = ["{ \"a\": \"}{\\\"\", \"b\": { \"c\": [ 1 ] } }", "{ \"a\": 2 }"];
        assert_eq!(got, expected.map(|object| (Joined::Object, object.to_owned())));
    }

    #[test]
    fn an_object_in_a_line_stays_one() {
        assert_eq!(joined("{\"a\":1}\nx\n{\"b\":{}},"), vec![(Joined::Line, String::new()); 3]);
    }

    #[test]
    fn an_object_without_end_gives_way_to_the_next() {
        assert_eq!(joined("{\"a\":\n1\n{\"b\":1}"), [(Joined::Broken, "{\"a\": 1".to_owned())]);
        let mut joiner = Joiner::default();
        assert_eq!((joiner.push(b"{"), joiner.rest()), (Joined::Going, Some(&b"{ "[..])));
        let long =
            vec![b' '; 10].into_iter().chain(vec![b'x'; OBJECT_BYTES_MAX]).collect::<Vec<u8>>();
        assert_eq!(joiner.push(&long), Joined::Broken);
        assert_eq!((joiner.push(b"{\"a\":1}"), joiner.rest()), (Joined::Line, None));
    }
}
