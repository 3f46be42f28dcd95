//! One request as a trace tells it, whatever its format.

bitflags::bitflags! {
    /// What a trace tells of a request and its reply beside sizes and times, as far as it matters
    /// to a cache.
    ///
    /// A mark that is not set says nothing where the format cannot tell: only JSON lines with the
    /// headers in them know of cookies and of `Cache-Control`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Marks: u8 {
        /// The target has a query.
        const QUERY = 1;
        /// The path is that of a program: `cgi-bin`, or a name ending in `.php`, `.cgi`, `.asp`,
        /// `.aspx`, `.jsp` or `.pl`.
        const DYNAMIC = 1 << 1;
        /// The user gave a name.
        const USER = 1 << 2;
        /// The reply sets a cookie.
        const SETS_COOKIE = 1 << 3;
        /// The reply's `Cache-Control` has `private`, `no-store` or `no-cache`.
        const PRIVATE = 1 << 4;
        /// The request has a cookie.
        const COOKIE = 1 << 5;
    }
}

/// Status of a reply that has one which the trace does not name.
pub const STATUS_UNNAMED: u16 = 999;

/// A request and its reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// When, in microseconds since an epoch of the trace's own; 0 where it has no times.
    pub time_us: u64,
    /// Who: a hash of the client's name, or its number; 0 where the trace has no clients.
    pub client: u64,
    /// What: a hash of the target, file handle or key, or the object's number.
    pub object: u64,
    /// What was done.
    pub verb: Verb,
    /// Status of the reply; 0 where the trace has none, [`STATUS_UNNAMED`] where it does not say
    /// which.
    pub status: u16,
    /// Bytes of the reply's body, or that were read or written, if the trace tells.
    pub bytes: Option<u64>,
    /// First byte that was asked for; 0 where whole objects are.
    pub offset: u64,
    /// Bytes of the whole object, if the trace tells.
    pub object_bytes: Option<u64>,
    /// When the object was last changed, in nanoseconds since 1970, if the trace tells.
    pub revision: Option<u64>,
    /// How the body was coded, if the trace tells.
    pub coding: Coding,
    /// What else is known.
    pub marks: Marks,
}

/// How a reply's body is coded (`Content-Encoding`; RFC 9110, 8.4.1), as far as a trace tells.
///
/// A target that is sent in two codings is two objects to a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Coding {
    /// The trace does not tell.
    #[default]
    Unknown,
    /// Not at all: the trace has a place for the coding, and nothing is there.
    Identity,
    /// gzip.
    Gzip,
    /// deflate.
    Deflate,
    /// br.
    Brotli,
    /// zstd.
    Zstd,
    /// Another one, or several.
    Other,
}

impl Coding {
    /// All of them, by their numbers.
    pub const ALL: [Self; 7] = [
        Self::Unknown,
        Self::Identity,
        Self::Gzip,
        Self::Deflate,
        Self::Brotli,
        Self::Zstd,
        Self::Other,
    ];

    /// The coding that a `Content-Encoding` names; nothing and `-` are none.
    pub fn of_header(value: &[u8]) -> Self {
        match value.trim_ascii() {
            b"" | b"-" => Self::Identity,
            value => Self::named(value).unwrap_or(Self::Other),
        }
    }

    /// The coding of this name; `None` if it is not one of those known here.
    pub fn named(name: &[u8]) -> Option<Self> {
        const NAMES: [(&[u8], Coding); 7] = [
            (b"identity", Coding::Identity),
            (b"gzip", Coding::Gzip),
            (b"x-gzip", Coding::Gzip),
            (b"deflate", Coding::Deflate),
            (b"br", Coding::Brotli),
            (b"zstd", Coding::Zstd),
            (b"other", Coding::Other),
        ];
        NAMES.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, coding)| *coding)
    }

    /// Its name, as [`Coding::named`] takes it; `None` for [`Coding::Unknown`].
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Unknown => None,
            Self::Identity => Some("identity"),
            Self::Gzip => Some("gzip"),
            Self::Deflate => Some("deflate"),
            Self::Brotli => Some("br"),
            Self::Zstd => Some("zstd"),
            Self::Other => Some("other"),
        }
    }
}

/// What a request does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Reads: GET, an NFS READ, a disk's read.
    #[default]
    Get,
    /// Asks for a GET's header: HEAD.
    Head,
    /// Changes something: POST, PUT, PATCH and DELETE, an NFS WRITE, a disk's write.
    Write,
    /// Anything else.
    Other,
}

impl Verb {
    /// The HTTP method of this name; `None` if it cannot be one.
    pub(crate) fn of_method(name: &[u8]) -> Option<Self> {
        match name {
            b"GET" => Some(Self::Get),
            b"HEAD" => Some(Self::Head),
            b"POST" | b"PUT" | b"PATCH" | b"DELETE" => Some(Self::Write),
            // WebDAV has names with a hyphen (RFC 3253 VERSION-CONTROL).
            _ => {
                let is_method = |&byte: &u8| byte.is_ascii_uppercase() || byte == b'-';
                (!name.is_empty() && name.iter().all(is_method)).then_some(Self::Other)
            }
        }
    }
}
