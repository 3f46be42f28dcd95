//! Writes SVG elements.

use std::fmt::Write as _;

use crate::escape::escape;
use crate::paint::{Paint, Role};

/// Where text is anchored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A run of text: size in pixels, role of its colour, weight, and is it drawn over something else?
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Letters {
    pub(crate) size: f64,
    pub(crate) role: Role,
    pub(crate) medium: bool,
    /// An outline in the background's colour keeps it readable over curves.
    pub(crate) halo: bool,
}

impl Letters {
    pub(crate) fn new(size: f64, role: Role) -> Self {
        Self { size, role, medium: false, halo: false }
    }
}

/// A growing SVG fragment.
#[derive(Debug)]
pub(crate) struct Pen {
    pub(crate) out: String,
    pub(crate) paint: Paint,
}

impl Pen {
    pub(crate) fn new(paint: Paint) -> Self {
        Self { out: String::new(), paint }
    }

    pub(crate) fn raw(&mut self, svg: &str) {
        self.out.push_str(svg);
    }

    pub(crate) fn line(
        &mut self,
        from: (f64, f64),
        to: (f64, f64),
        role: Role,
        width: f64,
        dash: Option<&str>,
    ) {
        let colour = self.paint.colour(role);
        let dash = dash.map(|dash| format!(" stroke-dasharray=\"{dash}\"")).unwrap_or_default();
        let (x1, y1, x2, y2) = (number(from.0), number(from.1), number(to.0), number(to.1));
        let _ = write!(
            self.out,
            "<path d=\"M{x1} {y1}L{x2} {y2}\" stroke=\"{colour}\" stroke-width=\"{width}\" fill=\"none\"{dash}/>"
        );
    }

    pub(crate) fn text(&mut self, at: (f64, f64), anchor: Anchor, letters: Letters, text: &str) {
        let colour = self.paint.colour(letters.role);
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let weight = if letters.medium { " font-weight=\"500\"" } else { "" };
        let halo = if letters.halo {
            let background = self.paint.colour(Role::Background);
            format!(
                " stroke=\"{background}\" stroke-width=\"3\" stroke-linejoin=\"round\" paint-order=\"stroke\""
            )
        } else {
            String::new()
        };
        let _ = write!(
            self.out,
            "<text x=\"{}\" y=\"{}\" font-size=\"{}\" fill=\"{colour}\"{anchor}{weight}{halo}>{}</text>",
            number(at.0),
            number(at.1),
            number(letters.size),
            escape(text)
        );
    }
}

/// A coordinate to a tenth of a pixel.
pub(crate) fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}
