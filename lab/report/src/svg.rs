//! A figure as an SVG file of its own, and as a PNG file.

use std::sync::Arc;

use resvg::usvg::{Options, Tree, fontdb};
use resvg::{tiny_skia, usvg};

use crate::drawing::{Look, describe, draw};
use crate::escape::{escape, slug};
use crate::paint::{LIGHT, Paint, Role};
use crate::{Figure, font};

/// The fonts of system interfaces; PNG files have the crate's own.
pub(crate) const FONTS: &str =
    "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif";

/// How large a figure is drawn, in CSS pixels (96 to the inch); letters have 12 of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Width; less than 200 is taken as 200, more than 4,000 as 4,000.
    pub width: u32,
    /// Height; less than 140 is taken as 140, more than 4,000 as 4,000.
    pub height: u32,
    /// Is the title drawn? Papers have it in the caption.
    pub title: bool,
}

impl Size {
    /// One of two columns of a paper: 3.5 inches wide, without a title.
    pub const COLUMN: Self = Self { width: 336, height: 252, title: false };
    /// A slide or a page: with a title.
    pub const PAGE: Self = Self { width: 720, height: 432, title: true };

    fn clamped(self) -> (f64, f64) {
        (f64::from(self.width.clamp(200, 4000)), f64::from(self.height.clamp(140, 4000)))
    }
}

/// Why there is no PNG file.
#[derive(Debug, thiserror::Error)]
pub enum PngError {
    /// The magnification is not above zero, or the picture would have more than 2^26 pixels (256
    /// MB).
    #[error(
        "a picture {width} x {height} times {magnification} is impossible or larger than 2^26 pixels; take less"
    )]
    Size {
        /// Width in CSS pixels.
        width: u32,
        /// Height in CSS pixels.
        height: u32,
        /// Pixels for each of them.
        magnification: f32,
    },
    /// The drawing could not be read back.
    #[error("the drawing is not an SVG that can be rendered: {0}")]
    Svg(#[from] usvg::Error),
    /// The picture could not be compressed.
    #[error("the picture could not be written as PNG: {0}")]
    Encoding(String),
}

const PIXELS_MAX: f64 = 67_108_864.0;

/// A figure as an SVG file: the light theme's colours, white behind, nothing referred to outside
/// the file.
pub fn svg(figure: &Figure, size: Size) -> String {
    let (width, height) = size.clamped();
    let name = slug(&figure.id);
    let look =
        Look { width, height, title: size.title, named: true, paint: Paint::Fixed, prefix: &name };
    let drawing = draw(figure, &look);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"{FONTS}\" role=\"img\" aria-labelledby=\"{name}-title {name}-desc\">\
         <title id=\"{name}-title\">{}</title><desc id=\"{name}-desc\">{}</desc>\
         <rect width=\"{width}\" height=\"{height}\" fill=\"{}\"/>{}</svg>\n",
        escape(&figure.title),
        escape(&describe(figure)),
        LIGHT.colour(Role::Background),
        drawing.svg
    )
}

/// A figure as a PNG file, `magnification` pixels for each CSS pixel (2 is usual for papers and
/// dense screens).
///
/// # Errors
///
/// If the picture would be impossible or too large.
pub fn png(figure: &Figure, size: Size, magnification: f32) -> Result<Vec<u8>, PngError> {
    let too_large = || PngError::Size { width: size.width, height: size.height, magnification };
    let (width, height) = size.clamped();
    let scale = f64::from(magnification);
    let (wide, high) = ((width * scale).round(), (height * scale).round());
    if !(wide >= 1.0 && high >= 1.0 && wide * high <= PIXELS_MAX) {
        return Err(too_large());
    }
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(font::REGULAR.to_vec());
    fonts.load_font_data(font::MEDIUM.to_vec());
    fonts.set_serif_family("Roboto");
    fonts.set_sans_serif_family("Roboto");
    let options = Options { fontdb: Arc::new(fonts), ..Options::default() };
    let tree = Tree::from_str(&svg(figure, size), &options)?;
    let mut picture = tiny_skia::Pixmap::new(wide as u32, high as u32).ok_or_else(too_large)?;
    resvg::render(
        &tree,
        tiny_skia::Transform::from_scale(magnification, magnification),
        &mut picture.as_mut(),
    );
    picture.encode_png().map_err(|error| PngError::Encoding(error.to_string()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Axis, Mark, Point, Scale, Series, Style, Unit};

    fn small() -> Figure {
        let band = |(x, y): (f64, f64)| Point::between(x, y, y - 5.0, y + 5.0);
        let points = [(1.0, 90.0), (4.0, 60.0), (16.0, 25.0), (64.0, 20.0)]
            .map(|(x, y)| (x * 1_048_576.0, y));
        let measured = Series { points: points.map(band).to_vec(), ..Series::line("measured", []) };
        Figure {
            id: "small".into(),
            title: "Miss ratio <by> size".into(),
            caption: "A small figure".into(),
            x: Axis::new("Size", Unit::Bytes, Scale::Log2),
            y: Axis::new("Miss ratio", Unit::Percent, Scale::Linear),
            series: vec![measured, Series::line("model", points).styled(Style::Dashed)],
            marks: vec![Mark::x(16_777_216.0, "knee: 16 MB")],
        }
    }

    fn bars() -> Figure {
        let one = |name: &str, values: [f64; 2]| {
            Series::line(name, (0..).map(f64::from).zip(values)).styled(Style::Bars)
        };
        Figure {
            id: "bars".into(),
            x: Axis::of_names("", ["LRU", "Popularity"]),
            y: Axis::new("Hits", Unit::Percent, Scale::Linear),
            series: vec![one("16 MB", [40.0, 55.0]), one("64 MB", [65.0, 72.0])],
            ..Figure::default()
        }
    }

    #[test]
    fn drawings_are_as_they_were() {
        for (name, figure) in
            [("small.svg", small()), ("bars.svg", bars()), ("empty.svg", Figure::default())]
        {
            // A line for each element, for whoever compares.
            let lines = svg(&figure, Size::COLUMN).replace("><", ">\n<");
            crate::snapshot::check(name, &lines);
        }
    }

    #[test]
    fn a_file_refers_to_nothing_outside_and_says_what_it_shows() {
        let text = svg(&small(), Size::PAGE);
        assert_eq!(text.matches("http").count(), 1, "only the name space");
        assert!(!text.contains("var(") && !text.contains("href"));
        assert!(text.contains("<title id=\"small-title\">Miss ratio &lt;by&gt; size</title>"));
        assert!(text.contains("measured: from 90.0 % at 1 MB to 20.0 % at 64 MB."));
    }

    /// Width, height and how many pixels of a picture are dark, by a decoder of PNG.
    fn decoded(png: &[u8]) -> (u32, u32, usize) {
        let picture = tiny_skia::Pixmap::decode_png(png).unwrap();
        let dark = picture
            .pixels()
            .iter()
            .filter(|pixel| pixel.red() < 128 && pixel.green() < 128)
            .count();
        (picture.width(), picture.height(), dark)
    }

    #[test]
    fn a_picture_has_its_size_and_its_letters() {
        let (width, height, dark) = decoded(&png(&small(), Size::COLUMN, 2.0).unwrap());
        assert_eq!((width, height), (672, 504));
        let figure = Figure { x: Axis { label: String::new(), ..small().x }, ..small() };
        let without = decoded(&png(&figure, Size::COLUMN, 2.0).unwrap()).2;
        // The four letters of a label are drawn, with fonts that are not the machine's.
        assert!(dark > without + 50, "{dark} {without}");
        assert_eq!(
            png(&small(), Size::COLUMN, 2.0).unwrap(),
            png(&small(), Size::COLUMN, 2.0).unwrap()
        );
    }

    #[test]
    fn impossible_pictures_are_refused() {
        for magnification in [0.0, -1.0, f32::NAN, f32::INFINITY, 1000.0] {
            assert!(
                matches!(png(&small(), Size::PAGE, magnification), Err(PngError::Size { .. })),
                "{magnification}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn any_figure_is_valid_svg(
            points in prop::collection::vec(
                (any::<f64>(), any::<f64>(), prop::option::of(any::<f64>())),
                0..20,
            ),
            scale in prop::sample::select(vec![Scale::Linear, Scale::Log2, Scale::Log10]),
            style in prop::sample::select(
                vec![Style::Line, Style::Dashed, Style::Points, Style::Steps, Style::Bars]),
            text in any::<String>(),
            names in prop::collection::vec(any::<String>(), 0..3),
            mark in any::<f64>(),
            width in any::<u32>(),
            height in any::<u32>(),
            series in 0_usize..5,
        ) {
            let points: Vec<Point> =
                points.into_iter().map(|(x, y, high)| Point { x, y, low: None, high }).collect();
            let one = Series { name: text.clone(), points, style, group: None };
            let figure = Figure {
                id: text.clone(),
                title: text.clone(),
                caption: text.clone(),
                x: Axis { names, ..Axis::new(text.clone(), Unit::Seconds, scale) },
                y: Axis::new(text.clone(), Unit::Count, scale),
                series: vec![one; series],
                marks: vec![Mark::x(mark, text.clone()), Mark::y(mark, text)],
            };
            let file = svg(&figure, Size { width, height, title: true });
            prop_assert!(Tree::from_str(&file, &Options::default()).is_ok(), "{file}");
            prop_assert!(!file.contains("NaN"));
        }
    }
}
