//! The components of a path, one after the other.

/// The components of a path that are yet to be looked up; links put theirs in front.
pub(super) struct Components {
    /// Last first.
    rest: Vec<Vec<u8>>,
    pub(super) wants_directory: bool,
}

impl Components {
    pub(super) fn new(path: &[u8]) -> Self {
        let mut components =
            Self { rest: Vec::with_capacity(16), wants_directory: path.ends_with(b"/") };
        components.prepend(path);
        components
    }

    /// A link at the end that ends in a slash wants a directory, too.
    pub(super) fn prepend(&mut self, path: &[u8]) {
        self.wants_directory |= self.rest.is_empty() && path.ends_with(b"/");
        self.rest.extend(
            path.split(|&byte| byte == b'/')
                .rev()
                .filter(|part| !part.is_empty())
                .map(<[u8]>::to_vec),
        );
    }

    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        self.rest.pop()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}
