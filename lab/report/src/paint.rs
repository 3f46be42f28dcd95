//! Colours, for both themes; markers, dashes and hatches, so colour is never the only
//! difference.
//!
//! Text has a contrast of at least 4.5 against the background, what is drawn at least 3 (WCAG 2.2,
//! 1.4.3 and 1.4.11), and the colours of the first series stay apart for readers who do not see
//! red, green or blue (Machado, Oliveira, Fernandes, "A Physiologically-based Model for Simulation
//! of Color Vision Deficiency", 2009).

use std::collections::HashMap;

use crate::{Figure, Style};

/// How many colours series have.
pub(crate) const COLOURS: usize = 8;

/// What a colour is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Behind everything.
    Background,
    /// Behind what stands out.
    Surface,
    /// Text.
    Ink,
    /// Text that is less important.
    Muted,
    /// Lines at ticks.
    Grid,
    /// The axis itself, and marks.
    Axis,
    /// Links and focus.
    Accent,
    /// A series; the number is below [`COLOURS`].
    Series(usize),
}

/// Where colours come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    /// The light theme's, written out.
    Fixed,
    /// CSS variables of the page.
    Variables,
}

/// The colours of one theme.
pub(crate) struct Theme {
    background: &'static str,
    surface: &'static str,
    ink: &'static str,
    muted: &'static str,
    grid: &'static str,
    axis: &'static str,
    accent: &'static str,
    series: [&'static str; COLOURS],
}

/// Dark on light.
pub(crate) const LIGHT: Theme = Theme {
    background: "#ffffff",
    surface: "#f3f5f8",
    ink: "#1a1f26",
    muted: "#586271",
    grid: "#e4e8ed",
    axis: "#8a94a3",
    accent: "#1a5fb4",
    series: [
        "#1f6fd1", "#d1620a", "#7a0f72", "#2f5d0b", "#738de2", "#a64450", "#4e3da5", "#c47890",
    ],
};

/// Light on dark.
pub(crate) const DARK: Theme = Theme {
    background: "#14171c",
    surface: "#1d2128",
    ink: "#e6e9ee",
    muted: "#a0aab8",
    grid: "#2a3039",
    axis: "#6f7a8a",
    accent: "#7ab5ff",
    series: [
        "#5aa9ff", "#ff9a4d", "#ad51a7", "#718516", "#87f3f2", "#c8787e", "#516ce9", "#eee354",
    ],
};

impl Theme {
    pub(crate) fn colour(&self, role: Role) -> &'static str {
        match role {
            Role::Background => self.background,
            Role::Surface => self.surface,
            Role::Ink => self.ink,
            Role::Muted => self.muted,
            Role::Grid => self.grid,
            Role::Axis => self.axis,
            Role::Accent => self.accent,
            Role::Series(index) => self.series[index % COLOURS],
        }
    }

    /// Declarations of the CSS variables that [`Paint::Variables`] refers to.
    pub(crate) fn css(&self) -> String {
        let roles = [
            Role::Background,
            Role::Surface,
            Role::Ink,
            Role::Muted,
            Role::Grid,
            Role::Axis,
            Role::Accent,
        ];
        let all = roles.into_iter().chain((0..COLOURS).map(Role::Series));
        all.map(|role| format!("--{}:{};", variable(role), self.colour(role))).collect()
    }
}

impl Paint {
    /// A colour, as an attribute's value.
    pub(crate) fn colour(self, role: Role) -> String {
        match self {
            Self::Fixed => LIGHT.colour(role).to_owned(),
            Self::Variables => format!("var(--{})", variable(role)),
        }
    }
}

fn variable(role: Role) -> String {
    match role {
        Role::Background => "bg".into(),
        Role::Surface => "surface".into(),
        Role::Ink => "ink".into(),
        Role::Muted => "muted".into(),
        Role::Grid => "grid".into(),
        Role::Axis => "axis".into(),
        Role::Accent => "accent".into(),
        Role::Series(index) => format!("s{}", index % COLOURS),
    }
}

/// How one series is told from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Appearance {
    pub(crate) colour: Role,
    /// `stroke-dasharray`.
    pub(crate) dash: Option<&'static str>,
    pub(crate) shape: Shape,
    /// Which hatch lies over a bar; none over those of the first series.
    pub(crate) hatch: Option<usize>,
}

/// The form of a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
    TriangleDown,
    Plus,
    Cross,
    Star,
}

const SHAPES: [Shape; 8] = [
    Shape::Circle,
    Shape::Square,
    Shape::Triangle,
    Shape::Diamond,
    Shape::TriangleDown,
    Shape::Plus,
    Shape::Cross,
    Shape::Star,
];
/// Kinds of hatches: diagonals either way, and dots.
pub(crate) const HATCHES: usize = 3;

/// The appearance of each series: a colour for each group, and for each series without one.
pub(crate) fn appearances(figure: &Figure) -> Vec<Appearance> {
    let mut groups: HashMap<&str, usize> = HashMap::new();
    let (mut colours, mut bars) = (0, 0);
    let mut next = || {
        colours += 1;
        colours - 1
    };
    let mut out = Vec::with_capacity(figure.series.len());
    for (index, series) in figure.series.iter().enumerate() {
        let colour = match &series.group {
            Some(group) => *groups.entry(group).or_insert_with(&mut next),
            None => next(),
        };
        let dash = match (series.style, (colour / COLOURS) % 3) {
            (Style::Dashed, 0) => Some("6 4"),
            (Style::Dashed, _) => Some("6 3 1 3"),
            (_, 0) => None,
            (_, 1) => Some("2 3"),
            (_, _) => Some("10 3"),
        };
        let bar = series.style == Style::Bars;
        bars += usize::from(bar);
        let hatch =
            (bar && bars > 1).then(|| (bars - 2) % (HATCHES + 1)).filter(|hatch| *hatch < HATCHES);
        out.push(Appearance {
            colour: Role::Series(colour % COLOURS),
            dash,
            shape: SHAPES[index % SHAPES.len()],
            hatch,
        });
    }
    out
}

impl Shape {
    /// The outline around a centre, as an SVG path; all shapes look equally large.
    pub(crate) fn path(self, x: f64, y: f64, radius: f64) -> String {
        let r = radius;
        let polygon = |corners: &[(f64, f64)]| -> String {
            let mut path = String::new();
            for (index, (dx, dy)) in corners.iter().enumerate() {
                path += &format!(
                    "{}{:.1} {:.1}",
                    if index == 0 { 'M' } else { 'L' },
                    x + dx * r,
                    y + dy * r
                );
            }
            path + "Z"
        };
        match self {
            Self::Circle => {
                format!(
                    "M{:.1} {y:.1}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0Z",
                    x - r,
                    d = 2.0 * r
                )
            }
            Self::Square => polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
            Self::Triangle => polygon(&[(0.0, -1.25), (1.15, 0.8), (-1.15, 0.8)]),
            Self::TriangleDown => polygon(&[(0.0, 1.25), (1.15, -0.8), (-1.15, -0.8)]),
            Self::Diamond => polygon(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
            Self::Plus => polygon(&plus()),
            Self::Cross => {
                let half = std::f64::consts::FRAC_1_SQRT_2;
                polygon(&plus().map(|(dx, dy)| ((dx - dy) * half, (dx + dy) * half)))
            }
            Self::Star => {
                let corner = |index: u8| {
                    let angle = std::f64::consts::PI * f64::from(index) / 5.0;
                    let reach = if index.is_multiple_of(2) { 1.45 } else { 0.62 };
                    (angle.sin() * reach, -angle.cos() * reach)
                };
                polygon(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(corner))
            }
        }
    }
}

fn plus() -> [(f64, f64); 12] {
    let (a, b) = (0.42, 1.3);
    [
        (-a, -b),
        (a, -b),
        (a, -a),
        (b, -a),
        (b, a),
        (a, a),
        (a, b),
        (-a, b),
        (-a, a),
        (-b, a),
        (-b, -a),
        (-a, -a),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Series;

    fn linear(hex: &str) -> [f64; 3] {
        [1, 3, 5].map(|at| {
            let channel = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
            if channel <= 0.04045 { channel / 12.92 } else { ((channel + 0.055) / 1.055).powf(2.4) }
        })
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let luminance = |hex| {
            linear(hex).iter().zip([0.2126, 0.7152, 0.0722]).map(|(c, w)| c * w).sum::<f64>() + 0.05
        };
        let (one, other) = (luminance(one), luminance(other));
        one.max(other) / one.min(other)
    }

    fn times(matrix: [[f64; 3]; 3], vector: [f64; 3]) -> [f64; 3] {
        matrix.map(|row| row.iter().zip(vector).map(|(m, v)| m * v).sum())
    }

    /// Oklab (Ottosson 2020) of a colour as seen with a matrix of Machado et al. 2009, table 1,
    /// severity 1.
    fn seen(hex: &str, deficiency: [[f64; 3]; 3]) -> [f64; 3] {
        let rgb = times(deficiency, linear(hex)).map(|channel| channel.clamp(0.0, 1.0));
        let lms = times(
            [
                [0.4122214708, 0.5363325363, 0.0514459929],
                [0.2119034982, 0.6806995451, 0.1073969566],
                [0.0883024619, 0.2817188376, 0.6299787005],
            ],
            rgb,
        );
        times(
            [
                [0.2104542553, 0.7936177850, -0.0040720468],
                [1.9779984951, -2.4285922050, 0.4505937099],
                [0.0259040371, 0.7827717662, -0.8086757660],
            ],
            lms.map(f64::cbrt),
        )
    }

    const SIGHTS: [[[f64; 3]; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ],
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ],
    ];

    #[test]
    fn contrasts_suffice() {
        for theme in [LIGHT, DARK] {
            for background in [theme.background, theme.surface] {
                for text in [theme.ink, theme.muted, theme.accent] {
                    assert!(contrast(text, background) >= 4.5, "{text} on {background}");
                }
            }
            for drawn in theme.series.iter().chain([&theme.axis]) {
                assert!(
                    contrast(drawn, theme.background) >= 3.0,
                    "{drawn}: {}",
                    contrast(drawn, theme.background)
                );
            }
        }
    }

    #[test]
    fn colours_stay_apart_for_all_kinds_of_sight() {
        for theme in [LIGHT, DARK] {
            for (index, one) in theme.series.iter().enumerate() {
                for other in &theme.series[..index] {
                    for sight in SIGHTS {
                        let (a, b) = (seen(one, sight), seen(other, sight));
                        let distance =
                            a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                        let least = if index < 4 { 0.09 } else { 0.05 };
                        assert!(distance >= least, "{one} {other}: {distance:.3}");
                    }
                }
            }
        }
    }

    #[test]
    fn no_two_series_look_alike() {
        let series = |index: usize| Series::line(index.to_string(), []);
        let figure = Figure { series: (0..24).map(series).collect(), ..Figure::default() };
        let all = appearances(&figure);
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one), "{index}");
        }
    }

    #[test]
    fn a_group_has_one_colour() {
        let line = |name: &str| Series::line(name, []);
        let series =
            vec![line("a").grouped("g"), line("b"), line("c").grouped("g").styled(Style::Dashed)];
        let all = appearances(&Figure { series, ..Figure::default() });
        assert_eq!(all[0].colour, all[2].colour);
        assert_ne!(all[0].colour, all[1].colour);
        assert_ne!(all[0].dash, all[2].dash);
    }
}
