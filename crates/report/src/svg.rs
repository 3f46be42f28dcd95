//! A figure as an SVG file of its own, and as a PNG file.

use std::sync::Arc;

use resvg::usvg::{Options, Tree, fontdb};
use resvg::{tiny_skia, usvg};

use crate::drawing::{Look, describe, draw};
use crate::escape::{escape, slug};
use crate::paint::{LIGHT, Paint, Role};
use crate::{Figure, font};

/// The fonts of system interfaces; PNG files have the crate's own.
pub(crate) const FONTS: &str = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif";

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
    pub const COLUMN: Size = Size { width: 336, height: 252, title: false };
    /// A slide or a page: with a title.
    pub const PAGE: Size = Size { width: 720, height: 432, title: true };

    fn clamped(self) -> (f64, f64) {
        (f64::from(self.width.clamp(200, 4000)), f64::from(self.height.clamp(140, 4000)))
    }
}

/// Why there is no PNG file.
#[derive(Debug, thiserror::Error)]
pub enum PngError {
    /// The magnification is not above zero, or the picture would have more than 2^26 pixels (256 MB).
    #[error("a picture {width} x {height} times {magnification} is impossible or larger than 2^26 pixels; take less")]
    Size {
        /// Width in CSS pixels.
        width: u32,
        /// Height in CSS pixels.
        height: u32,
        /// Pixels for each of them.
        magnification: f32,
    },
    /// The drawing could not be read back.
    #[error("the drawing is no SVG that can be rendered: {0}")]
    Svg(#[from] usvg::Error),
    /// The picture could not be compressed.
    #[error("the picture could not be written as PNG: {0}")]
    Encoding(String),
}

const PIXELS_MAX: f64 = 67_108_864.0;

/// A figure as an SVG file: the light theme's colours, white behind, nothing referred to outside the file.
pub fn svg(figure: &Figure, size: Size) -> String {
    let (width, height) = size.clamped();
    let name = slug(&figure.id);
    let look = Look { width, height, title: size.title, named: true, paint: Paint::Fixed, prefix: &name };
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

/// A figure as a PNG file, `magnification` pixels for each CSS pixel (2 is usual for papers and dense screens).
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
    resvg::render(&tree, tiny_skia::Transform::from_scale(magnification, magnification), &mut picture.as_mut());
    picture.encode_png().map_err(|error| PngError::Encoding(error.to_string()))
}
