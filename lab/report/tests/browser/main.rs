//! The page in a real browser: Debian's chromium, without network.

mod devtools;
#[allow(dead_code)]
#[path = "../../examples/sample.rs"]
mod sample;

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use devtools::Browser;
use nicache_report::{Axis, Figure, Report, Scale, Section, Series, Unit, figure_csv, html};
use tempfile::TempDir;

/// A report in a file.
fn written(report: &Report) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    std::fs::write(&file, html(report)).unwrap();
    (folder, file)
}

fn opened(report: &Report, width: u32, theme: &str) -> (Browser, TempDir) {
    let (folder, file) = written(report);
    let mut browser = Browser::start();
    browser.look(width, 900, theme);
    browser.open(&file);
    (browser, folder)
}

/// WCAG 2.2's contrast of what is drawn in a page against what is behind it: [text, what, contrast]
/// of all that have too little; 4.5 for text (3 if large), 3 for curves, markers and swatches.
const POOR_CONTRASTS: &str = r#"(() => {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const channels = (colour) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (rgb) => rgb.slice(0, 3).map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, index) => sum + c * [0.2126, 0.7152, 0.0722][index], 0) + 0.05;
  const contrast = (a, b) => Math.max(luminance(a), luminance(b)) / Math.min(luminance(a), luminance(b));
  const behind = (it) => {
    for (; it; it = it.parentElement) {
      const colour = channels(getComputedStyle(it).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const poor = [];
  let looked = 0;
  for (const it of document.querySelectorAll("body *")) {
    if (!it.getClientRects().length || it.closest("script,style,clipPath,pattern")) continue;
    const style = getComputedStyle(it), drawn = it instanceof SVGElement;
    const text = [...it.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    let colour = null, least = 3;
    if (text) {
      colour = drawn ? style.fill : style.color;
      least = parseFloat(style.fontSize) >= 24 ? 3 : 4.5;
    } else if (it.matches("g[data-series] path, .legend svg path, .legend svg rect")) {
      const opaque = style.fillOpacity === "1" && !style.fill.includes("url");
      colour = style.fill !== "none" && opaque ? style.fill : style.fill === "none" ? style.stroke : null;
      // The hatch of a swatch is the background's on purpose.
      if (it.matches(".legend rect + path")) colour = null;
    }
    if (!colour) continue;
    looked++;
    const found = contrast(channels(colour), behind(it));
    if (found < least) poor.push([it.textContent.slice(0, 40) || it.outerHTML.slice(0, 80), colour, found]);
  }
  return { looked, poor };
})()"#;

/// Labels of figures that leave their drawing or cover another label, and the latter.
const MISPLACED_LABELS: &str = r#"[...document.querySelectorAll(".plot > svg")]
  .filter((svg) => svg.getClientRects().length)
  .flatMap((svg) => {
    const paper = svg.getBoundingClientRect();
    const labels = [...svg.querySelectorAll("text")].map((it) => [it.textContent, it.getBoundingClientRect()]);
    const outside = labels.filter(([, box]) => box.left < paper.left - 1 || box.right > paper.right + 1 ||
      box.top < paper.top - 1 || box.bottom > paper.bottom + 1).map(([text]) => [text]);
    // The lines that letters stand on are further apart than their boxes.
    const meet = (a, b) => a.left < b.right && b.left < a.right && a.top + 4 < b.bottom && b.top + 4 < a.bottom;
    const covered = labels.flatMap(([text, box], index) =>
      labels.slice(0, index).filter(([, other]) => meet(box, other)).map(([other]) => [text, other]));
    return [...outside, ...covered];
  })"#;

#[test]
fn the_page_is_quiet_fits_and_can_be_read_in_both_themes() {
    let (_folder, file) = written(&sample::sample());
    let mut browser = Browser::start();
    let mut backgrounds = Vec::new();
    for (width, theme) in [
        (1280, "light"),
        (1280, "dark"),
        (768, "light"),
        (360, "light"),
        (360, "dark"),
        (320, "light"),
    ] {
        browser.look(width, 900, theme);
        browser.open(&file);
        assert_eq!(browser.complaints(), Vec::<String>::new(), "{width} {theme}");
        let widest = browser.value("document.documentElement.scrollWidth").as_u64().unwrap();
        assert!(widest <= u64::from(width), "{widest} > {width}");
        // One drawing of each figure is seen, and its letters are not tiny.
        let seen = browser.value(
            "[...document.querySelectorAll('.plot')].map(plot => [...plot.querySelectorAll(':scope > svg')] \
             .map(svg => svg.getBoundingClientRect()).filter(box => box.width > 0).length)",
        );
        assert_eq!(seen, serde_json::json!([1, 1, 1, 1]));
        let smallest = browser.value(
            "Math.min(...[...document.querySelectorAll('.plot text')].map(it => it.getBoundingClientRect().height) \
             .filter(height => height > 0))",
        );
        assert!(smallest.as_f64().unwrap() >= 9.5, "{width}: {smallest}");
        assert_eq!(browser.value(MISPLACED_LABELS), serde_json::json!([]), "{width} {theme}");
        let contrasts = browser.value(POOR_CONTRASTS);
        assert_eq!(contrasts["poor"], serde_json::json!([]), "{width} {theme}");
        assert!(contrasts["looked"].as_u64().unwrap() > 100);
        // Nor do the tables below the figures make the page wider, or hide their text.
        browser.value("document.querySelectorAll('details').forEach(it => { it.open = true; })");
        let widest = browser.value("document.documentElement.scrollWidth").as_u64().unwrap();
        assert!(widest <= u64::from(width), "{widest} > {width}");
        assert_eq!(browser.value(POOR_CONTRASTS)["poor"], serde_json::json!([]), "{width} {theme}");
        backgrounds.push(browser.text("getComputedStyle(document.body).backgroundColor"));
    }
    assert_ne!(backgrounds[0], backgrounds[1]);
}

#[test]
fn the_button_changes_the_theme() {
    let (mut browser, _folder) = opened(&sample::sample(), 1280, "light");
    let background = "getComputedStyle(document.body).backgroundColor";
    let curve = "getComputedStyle(document.querySelector('.given g[data-series] path[stroke-width=\"2\"]')).stroke";
    let light = (browser.text(background), browser.text(curve));
    browser.point(".theme", true);
    let dark = (browser.text(background), browser.text(curve));
    assert!(light.0 != dark.0 && light.1 != dark.1, "{light:?} {dark:?}");
    assert_eq!(
        browser.text("document.querySelector('.theme').getAttribute('aria-pressed')"),
        "true"
    );
    assert_eq!(browser.value(POOR_CONTRASTS)["poor"], serde_json::json!([]));
    browser.point(".theme", true);
    assert_eq!((browser.text(background), browser.text(curve)), light);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn paper_is_light_and_has_no_controls() {
    let (mut browser, _folder) = opened(&sample::sample(), 1280, "dark");
    let features = serde_json::json!([{ "name": "prefers-color-scheme", "value": "dark" }]);
    browser.call(
        "Emulation.setEmulatedMedia",
        serde_json::json!({ "media": "print", "features": features }),
    );
    assert_eq!(
        browser.text("getComputedStyle(document.body).backgroundColor"),
        "rgb(255, 255, 255)"
    );
    let controls = "[...document.querySelectorAll('.theme, .scale, .links, nav, summary')]";
    assert_eq!(
        browser.value(&format!("{controls}.filter(it => it.getClientRects().length).length")),
        0
    );
    assert_eq!(browser.value(POOR_CONTRASTS)["poor"], serde_json::json!([]));
}

#[test]
fn a_legend_button_hides_its_series() {
    let (mut browser, _folder) = opened(&sample::sample(), 1280, "light");
    let shown = "[...document.querySelectorAll('#plot-miss-ratio .given.wide > g[data-series]')] \
                 .map(it => it.getClientRects().length > 0)";
    let all = serde_json::json!([true, true, true, true, true, true]);
    assert_eq!(browser.value(shown), all);
    let button = "#plot-miss-ratio .legend li[data-series='2'] button";
    browser.point(button, true);
    assert_eq!(browser.value(shown), serde_json::json!([true, true, false, true, true, true]));
    let pressed = format!("document.querySelector(\"{button}\").getAttribute('aria-pressed')");
    assert_eq!(browser.text(&pressed), "false");
    // What is hidden is not read, either.
    browser.value("document.querySelector('#plot-miss-ratio .plot').focus()");
    browser.press("ArrowRight");
    let live = browser.text("document.querySelector('#plot-miss-ratio [aria-live]').textContent");
    assert!(live.contains("S3-FIFO") && !live.contains(" FIFO"), "{live}");
    browser.point(button, true);
    assert_eq!(browser.value(shown), all);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn arrow_keys_move_the_cursor_and_values_are_told() {
    let (mut browser, _folder) = opened(&sample::sample(), 1280, "light");
    // Everything that can be used is reached with the tabulator; the plot is among it.
    let mut reached = false;
    for _ in 0..40 {
        browser.press("Tab");
        reached |=
            browser.value("document.activeElement.matches('#plot-miss-ratio .plot')") == true;
        if reached {
            break;
        }
    }
    assert!(reached);
    let live = "document.querySelector('#plot-miss-ratio [aria-live]').textContent";
    let cursor = "document.querySelector('#plot-miss-ratio .cursor path')?.getAttribute('d') ?? ''";
    assert_eq!(browser.text(live), "");
    browser.press("ArrowRight");
    let first = (browser.text(live), browser.text(cursor));
    assert!(
        first.0.starts_with("Card memory 1 MB: LRU 93.") && first.0.contains("Belady 85."),
        "{}",
        first.0
    );
    assert!(first.0.contains("LRU, sampled") && first.0.contains(" to "), "{}", first.0);
    browser.press("ArrowRight");
    let second = (browser.text(live), browser.text(cursor));
    assert!(
        second.0 != first.0 && second.1 != first.1 && second.0.starts_with("Card memory 1.09 MB"),
        "{second:?}"
    );
    // The sampled curve has no point there; what lies on its line is said to be near.
    assert!(second.0.contains("LRU, sampled ≈ 9"), "{}", second.0);
    browser.press("ArrowLeft");
    assert_eq!((browser.text(live), browser.text(cursor)), first);
    browser.press("End");
    assert!(browser.text(live).starts_with("Card memory 1 GB"));
    browser.press("Escape");
    assert_eq!(browser.text(cursor), "");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn the_mouse_reads_values_and_the_tip_stays_in_the_page() {
    for width in [1280, 360] {
        let (mut browser, _folder) = opened(&sample::sample(), width, "dark");
        browser.point("#plot-miss-ratio .plot", false);
        let tip = "document.querySelector('#plot-miss-ratio .tip')";
        assert_eq!(browser.value(&format!("{tip}.hidden")), false);
        let count = browser.value(&format!("{tip}.querySelectorAll('em').length"));
        assert_eq!(count, 6);
        let right =
            browser.value(&format!("{tip}.getBoundingClientRect().right")).as_f64().unwrap();
        assert!(right <= f64::from(width), "{right}");
        assert_eq!(browser.value(POOR_CONTRASTS)["poor"], serde_json::json!([]));
        assert_eq!(browser.complaints(), Vec::<String>::new());
    }
}

#[test]
fn the_script_writes_numbers_as_the_tables_do() {
    // The same awkward numbers in every unit: the script's text at each point must be the table's.
    let values = [
        0.0, 1e-9, 3.4e-7, 0.000_123, 0.0049, 0.05, 0.1, 0.25, 0.999, 1.0, 2.5, 12.25, 49.95,
        71.25, 99.5, 99.95,
    ]
    .into_iter()
    .chain([
        99.999,
        100.0,
        1000.0,
        1023.4,
        1023.9,
        4095.0,
        65_535.5,
        1e6,
        1_048_575.9,
        7.7e9,
        1e15,
        3.5e21,
        -7.25,
    ]);
    let values: Vec<f64> = values.collect();
    let units = [Unit::Bytes, Unit::Percent, Unit::Count, Unit::Seconds, Unit::Number];
    let figures = units.map(|unit| Figure {
        id: format!("{unit:?}"),
        x: Axis::new("x", Unit::Number, Scale::Linear),
        y: Axis::new("y", unit, Scale::Linear),
        series: vec![Series::line("only", (0..).map(f64::from).zip(values.iter().copied()))],
        ..Figure::default()
    });
    let section = Section { figures: figures.to_vec(), ..Section::default() };
    let (mut browser, _folder) =
        opened(&Report { sections: vec![section], ..Report::default() }, 1280, "light");
    for unit in units {
        let id = format!("plot-{}", format!("{unit:?}").to_lowercase());
        browser.value(&format!("document.querySelector('#{id} .plot').focus()"));
        for (index, value) in values.iter().enumerate() {
            browser.press("ArrowRight");
            let live =
                browser.text(&format!("document.querySelector('#{id} [aria-live]').textContent"));
            let rows = format!("document.querySelectorAll('#{id} details tbody tr')[{index}]");
            let cell = browser.text(&format!("{rows}.querySelector('td').textContent"));
            assert_eq!(cell, unit.format(*value));
            assert_eq!(live, format!("x {index}: only {cell}"), "{unit:?} {value}");
        }
    }
}

#[test]
fn the_horizontal_axis_can_be_linear() {
    for width in [1280, 360] {
        let (mut browser, _folder) = opened(&sample::sample(), width, "light");
        let seen = "[...document.querySelectorAll('#plot-miss-ratio .plot > svg')] \
                    .find(svg => svg.getBoundingClientRect().width > 0).getAttribute('class')";
        let size = if width == 1280 { "wide" } else { "narrow" };
        assert_eq!(browser.text(seen), format!("given {size}"));
        browser.point("#plot-miss-ratio .scale button[value=linear]", true);
        assert_eq!(browser.text(seen), format!("linear {size}"));
        browser.value("document.querySelector('#plot-miss-ratio .plot').focus()");
        browser.press("Home");
        let place = "document.querySelector('#plot-miss-ratio .cursor path').getAttribute('d')";
        let home = browser.text(place);
        browser.press("ArrowRight");
        assert_ne!(browser.text(place), home);
        browser.point("#plot-miss-ratio .scale button[value=given]", true);
        assert_eq!(browser.text(seen), format!("given {size}"));
        // Hours of the day have no logarithm worth looking at.
        assert_eq!(
            browser.value("document.querySelector('#plot-traffic .scale')"),
            serde_json::Value::Null
        );
        assert_eq!(browser.complaints(), Vec::<String>::new());
    }
}

#[test]
fn the_page_can_be_read_without_its_script() {
    let (_folder, file) = written(&sample::sample());
    let mut browser = Browser::start();
    browser.look(1280, 900, "light");
    browser.call("Emulation.setScriptExecutionDisabled", serde_json::json!({ "value": true }));
    browser.open(&file);
    assert_eq!(browser.complaints(), Vec::<String>::new());
    assert_eq!(
        browser.value(
            "document.querySelectorAll('[aria-live], button:not([hidden])').length - \
                              document.querySelectorAll('[hidden] button').length"
        ),
        0
    );
    let text = browser.text("document.body.innerText");
    for expected in
        ["Popularity", "knee: 24 MB", "21.4 %", "Download CSV", "Miss ratio by policy and size"]
    {
        assert!(text.contains(expected), "{expected}");
    }
    let seen = browser.value(
        "[...document.querySelectorAll('.plot > svg')].filter(svg => svg.getBoundingClientRect().width > 0).length",
    );
    assert_eq!(seen, 4);
    browser.point("#plot-miss-ratio summary", true);
    assert_eq!(
        browser
            .value("document.querySelector('#plot-miss-ratio tbody tr').getClientRects().length"),
        1
    );
}

#[test]
fn structure_is_what_assistive_technology_expects() {
    let (mut browser, _folder) = opened(&sample::sample(), 1280, "light");
    assert_eq!(browser.text("document.documentElement.lang"), "en");
    let levels = browser
        .text("[...document.querySelectorAll('h1,h2,h3')].map(it => it.tagName[1]).join('')");
    assert_eq!(levels, "12332".to_owned() + "33");
    for (what, selector) in [
        ("table without caption", "table:not(:has(caption:not(:empty)))"),
        ("head without scope", "th:not([scope])"),
        ("drawing without text", "svg:not([aria-label]):not([aria-hidden])"),
        ("button without name", "button:empty:not([aria-label])"),
        ("style attribute of the page's own", "svg [style]"),
    ] {
        let count = browser.value(&format!("document.querySelectorAll('{selector}').length"));
        assert_eq!(count, 0, "{what}");
    }
    // The first stop of the tabulator leads past the head.
    browser.press("Tab");
    assert_eq!(browser.text("document.activeElement.getAttribute('href')"), "#content");
}

#[test]
fn downloads_are_whole() {
    let report = sample::sample();
    let (mut browser, _folder) = opened(&report, 1280, "light");
    let hrefs =
        browser.value("[...document.querySelectorAll('#plot-miss-ratio .links a')].map(a => [a.download, a.href])");
    let decoded = |index: usize| {
        let href = hrefs[index][1].as_str().unwrap();
        String::from_utf8(STANDARD.decode(href.split_once("base64,").unwrap().1).unwrap()).unwrap()
    };
    assert_eq!(
        (hrefs[0][0].as_str(), hrefs[1][0].as_str()),
        (Some("miss-ratio.csv"), Some("miss-ratio.svg"))
    );
    assert_eq!(decoded(0), figure_csv(&report.sections[0].figures[0]));
    assert!(decoded(1).starts_with("<svg xmlns="));
}

#[test]
fn hostile_names_do_nothing() {
    let hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"' onfocus=alert(3) autofocus='";
    let line = Series::line(hostile, [(1.0, 1.0), (8.0, 2.0)]);
    let figure = Figure {
        id: hostile.into(),
        title: hostile.into(),
        caption: hostile.into(),
        x: Axis::new(hostile, Unit::Bytes, Scale::Log2),
        y: Axis::new(hostile, Unit::Bytes, Scale::Linear),
        series: vec![line.clone(), line],
        marks: Vec::new(),
    };
    let section = Section { title: hostile.into(), figures: vec![figure], ..Section::default() };
    let report = Report { title: hostile.into(), sections: vec![section], ..Report::default() };
    let (mut browser, _folder) = opened(&report, 360, "light");
    assert!(browser.value("document.documentElement.scrollWidth").as_u64().unwrap() <= 360);
    browser.point(".plot", false);
    browser.value("document.querySelector('.plot').focus()");
    browser.press("ArrowRight");
    assert!(browser.text("document.querySelector('.tip').textContent").contains("<img"));
    assert_eq!(browser.complaints(), Vec::<String>::new());
    assert_eq!(browser.value("document.images.length"), 0);
    assert_eq!(browser.text("document.querySelector('h1').textContent"), hostile);
}

#[test]
#[ignore = "writes pictures for people into the folder that NICACHE_PICTURES names"]
fn pictures() {
    let folder =
        PathBuf::from(std::env::var("NICACHE_PICTURES").expect("NICACHE_PICTURES names a folder"));
    let (_folder, file) = written(&sample::sample());
    let mut browser = Browser::start();
    for (width, theme) in [(1280, "light"), (1280, "dark"), (360, "light"), (360, "dark")] {
        browser.look(width, 900, theme);
        browser.open(&file);
        let picture = STANDARD.decode(browser.picture(true)).unwrap();
        std::fs::write(folder.join(format!("report-{width}-{theme}.png")), picture).unwrap();
        for (name, selector) in
            [("cursor", "#plot-miss-ratio .plot"), ("table", "section > .tablebox")]
        {
            browser.point(selector, false);
            let picture = STANDARD.decode(browser.picture(false)).unwrap();
            std::fs::write(folder.join(format!("{name}-{width}-{theme}.png")), picture).unwrap();
        }
    }
}
