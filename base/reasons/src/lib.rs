//! Reasons that are counted: why a request passes, a reply is not kept, or a statement touches
//! everything.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

/// Makes an enumeration of reasons, each with a label for metrics:
///
/// ```
/// nicache_reasons::reasons! {
///     /// Why a letter comes back.
///     Returned {
///         /// Nobody of that name lives there.
///         Unknown => "unknown",
///         /// It has no stamp.
///         Unpaid => "unpaid",
///     }
/// }
/// assert_eq!(Returned::Unpaid.label(), "unpaid");
/// assert_eq!(Returned::ALL[Returned::Unpaid.index()], Returned::Unpaid);
/// ```
#[macro_export]
macro_rules! reasons {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident => $label:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// Every reason, in the order of [`Self::index`].
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The reason's name in metrics, in snake case.
            pub const fn label(&self) -> &'static str {
                match self { $($name::$variant => $label,)+ }
            }

            /// Position in [`Self::ALL`], for an array of counters.
            pub const fn index(&self) -> usize {
                *self as usize
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.label())
            }
        }
    };
}
