//! Counters that are named and described once: in the line of their field.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

/// What a counter is called, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The counter's name in messages and metrics, in snake case.
    pub name: &'static str,
    /// What it is, for people: a sentence.
    pub help: &'static str,
    /// The value can also go down.
    pub is_gauge: bool,
}

impl Counter {
    /// One that only grows.
    pub const fn growing(name: &'static str, help: &'static str) -> Self {
        Self { name, help, is_gauge: false }
    }

    /// What there is at the moment.
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, help, is_gauge: true }
    }

    /// The counter of this name, in the first of the lists that has it.
    pub fn find(lists: &[&'static [Self]], name: &str) -> Option<&'static Self> {
        lists.iter().flat_map(|list| list.iter()).find(|counter| counter.name == name)
    }
}

/// Makes a struct of counters. Each line has the field and what it counts, which is the field's
/// documentation, too. `as` gives it another name in metrics than the field's. One that also sinks
/// is a `gauge`.
///
/// ```
/// nicache_counters::counters! {
///     /// What a post office has done.
///     #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
///     pub struct Post {
///         taken: "Letters that were handed in.",
///         returned as "came_back": "Letters that came back.",
///         waiting: gauge "Letters that wait at the moment.",
///     }
/// }
/// let post = Post { taken: 5, returned: 1, waiting: 2 };
/// assert_eq!(Post::COUNTERS[1].name, "came_back");
/// assert_eq!(Post::COUNTERS[1].help, "Letters that came back.");
/// assert_eq!(post.each().map(|(counter, value)| (counter.name, value)).collect::<Vec<_>>(), [("taken", 5), ("came_back", 1), ("waiting", 2)]);
/// assert!(Post::COUNTERS[2].is_gauge);
/// ```
///
/// Fields that are not numbers, or have no name, stand `beside` these. What follows from them is
/// `shown`:
///
/// ```
/// nicache_counters::counters! {
///     /// What a post office has done.
///     #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
///     pub struct Post {
///         taken: "Letters that were handed in.",
///     }
///     beside {
///         /// Letters that were delivered, by floor.
///         pub delivered: [u64; 2],
///     }
///     shown {
///         "upstairs": "Letters for the upper floor.", |post| post.delivered[1];
///     }
/// }
/// let post = Post { taken: 5, delivered: [3, 1] };
/// assert_eq!(post.each().last().map(|(counter, value)| (counter.help, value)), Some(("Letters for the upper floor.", 1)));
/// ```
#[macro_export]
macro_rules! counters {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident { $(
            $field:ident $(as $label:literal)?: $($kind:ident)? $help:literal,)* }
        $(beside { $($(#[$doc:meta])* $beside_vis:vis $beside:ident: $type:ty,)* })?
        $(shown { $($shown:literal: $shown_help:literal, |$counters:ident| $value:expr;)* })?
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $(#[doc = $help] $vis $field: u64,)*
            $($($(#[$doc])* $beside_vis $beside: $type,)*)?
        }

        impl $name {
            /// What the counters are called, and what they are.
            $vis const COUNTERS: &'static [$crate::Counter] = &[
                $($crate::counter!($($kind)? ($crate::name!($field $($label)?), $help)),)*
                $($($crate::Counter::growing($shown, $shown_help),)*)?
            ];

            /// Every counter with its value, in the order of [`Self::COUNTERS`].
            $vis fn each(&self) -> impl Iterator<Item = (&'static $crate::Counter, u64)> {
                let values = [
                    $(self.$field,)*
                    $($({ let $counters = self; $value },)*)?
                ];
                Self::COUNTERS.iter().zip(values)
            }

            /// Adds the counters of another. What stands beside these is left as it is.
            #[allow(dead_code, reason = "not all lists are summed up")]
            $vis fn add_each(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

/// The name of a counter. Part of [`counters!`].
#[doc(hidden)]
#[macro_export]
macro_rules! name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $label:literal) => {
        $label
    };
}

/// What is told of a counter. Part of [`counters!`].
#[doc(hidden)]
#[macro_export]
macro_rules! counter {
    (($name:expr, $help:literal)) => {
        $crate::Counter::growing($name, $help)
    };
    (gauge ($name:expr, $help:literal)) => {
        $crate::Counter::gauge($name, $help)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    counters! {
        /// Some.
        #[derive(Clone, Debug, Default)]
        struct Some {
            one: "The first.",
            two as "second": "The second.",
        }
        beside {
            many: [u64; 2],
        }
        shown {
            "last": "The last of many.", |some| some.many[1];
            "all": "All of many.", |some| some.many.iter().sum();
        }
    }

    #[test]
    fn counters_add_up_and_nothing_else() {
        let mut all = Some { one: 1, two: 2, many: [3, 4] };
        all.add_each(&Some { one: 10, two: 20, many: [30, 40] });
        assert_eq!((all.one, all.two, all.many), (11, 22, [3, 4]));
    }

    #[test]
    fn names_helps_and_values_belong_together() {
        let some = Some { one: 1, two: 2, many: [3, 4] };
        let each: Vec<_> =
            some.each().map(|(counter, value)| (counter.name, counter.help, value)).collect();
        assert_eq!(
            each,
            [
                ("one", "The first.", 1),
                ("second", "The second.", 2),
                ("last", "The last of many.", 4),
                ("all", "All of many.", 7)
            ]
        );
        static GAUGES: [Counter; 1] = [Counter::gauge("open", "Those at the moment.")];
        let lists = [Some::COUNTERS, &GAUGES];
        assert!(Counter::find(&lists, "open").is_some_and(|counter| counter.is_gauge));
        assert!(Counter::find(&lists, "second").is_some_and(|counter| !counter.is_gauge));
        assert_eq!(Counter::find(&lists, "two"), None);
    }
}
