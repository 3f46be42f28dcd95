//! The live page in a real browser: Debian's chromium.

#[path = "../../../../lab/report/tests/browser/devtools.rs"]
#[allow(dead_code)]
mod devtools;
mod source;

use std::time::Duration;

use devtools::Browser;
use nicache_admin::{AdminServer, Sample};
use serde_json::json;
use source::{HOSTILE, busy, serve, serve_at, within};

const SOON: Duration = Duration::from_secs(20);

fn url(server: &AdminServer) -> String {
    format!("http://{}/", server.address())
}

/// A browser whose page has drawn a few points.
fn watching(server: &AdminServer, width: u32, theme: &str) -> Browser {
    let mut browser = Browser::start();
    browser.look(width, 900, theme);
    browser.visit(&url(server));
    await_points(&mut browser);
    browser
}

fn await_points(browser: &mut Browser) {
    within(SOON, "a drawn curve", || {
        browser.value("document.querySelectorAll('#requests path.s0').length") == 1
    });
}

/// [text, contrast] of what has too little against what is behind it (WCAG 2.2, 1.4.3 and 1.4.11).
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
    if (!it.getClientRects().length || it.closest("script,style,noscript")) continue;
    const style = getComputedStyle(it), text = [...it.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    let colour = null, least = 3;
    if (text) [colour, least] = [it instanceof SVGElement ? style.fill : style.color, parseFloat(style.fontSize) >= 24 ? 3 : 4.5];
    else if (it.matches(".plot path[class*=' s'], .legend rect, .meter rect")) colour = style.fill !== "none" ? style.fill : style.stroke;
    if (!colour) continue;
    looked++;
    const found = contrast(channels(colour), behind(it));
    if (found < least) poor.push([it.textContent.slice(0, 40) || it.outerHTML.slice(0, 80), found]);
  }
  return { looked, poor };
})()"#;

/// Labels that leave their drawing.
const LABELS_OUTSIDE: &str = "[...document.querySelectorAll('.plot svg text')].filter((text) => { const a = text.getBoundingClientRect(), \
    b = text.closest('.plot').getBoundingClientRect(); return a.left < b.left - 1 || a.right > b.right + 1; }).map((text) => text.textContent)";

#[test]
fn it_fits_every_width_and_can_be_read_in_both_themes() {
    let (_numbers, server) = serve(busy());
    let mut browser = watching(&server, 1280, "light");
    for (width, theme) in [
        (1600, "light"),
        (1280, "dark"),
        (768, "light"),
        (360, "light"),
        (360, "dark"),
        (320, "light"),
    ] {
        browser.look(width, 900, theme);
        // Charts are drawn anew a moment later. Then nothing is wider than the window, and no label
        // leaves its drawing.
        std::thread::sleep(Duration::from_millis(300));
        let mut looks = 0;
        let (widest, outside) = loop {
            let widest = browser.value("document.documentElement.scrollWidth").as_u64().unwrap();
            let outside = browser.value(LABELS_OUTSIDE);
            looks += 1;
            if looks == 100 || (widest <= u64::from(width) && outside == json!([])) {
                break (widest, outside);
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        assert!(widest <= u64::from(width), "{widest} > {width}");
        assert_eq!(outside, json!([]), "{width} {theme}");
        let contrasts = browser.value(POOR_CONTRASTS);
        assert_eq!(contrasts["poor"], json!([]), "{width} {theme}");
        assert!(contrasts["looked"].as_u64().unwrap() > 60, "{contrasts}");
        if let Some(folder) = std::env::var_os("NICACHE_PICTURES") {
            use base64::Engine as _;
            let picture =
                base64::engine::general_purpose::STANDARD.decode(browser.picture(true)).unwrap();
            std::fs::write(
                std::path::Path::new(&folder).join(format!("admin-{width}-{theme}.png")),
                picture,
            )
            .unwrap();
        }
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn what_clients_choose_is_text() {
    let mut sample = busy();
    sample.name = "<b>shop</b>".into();
    sample.serves = HOSTILE.into();
    sample.not_caching = Some(HOSTILE.into());
    let (_numbers, server) = serve(sample);
    let mut browser = watching(&server, 1280, "light");
    let row =
        "[...document.querySelectorAll('#hot tbody th')].map((it) => it.childNodes[1].textContent)";
    within(SOON, "the hottest objects", || {
        browser.value(row).as_array().is_some_and(|rows| rows.len() == 6)
    });
    assert_eq!(browser.value(row)[3], HOSTILE);
    assert_eq!(browser.text("document.title"), "<b>shop</b> – nicache");
    assert_eq!(browser.text("document.getElementById('serves').textContent"), HOSTILE);
    assert_eq!(
        browser.value("document.images.length + document.scripts.length + document.querySelectorAll('b b').length"),
        1
    );
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn figures_are_those_of_the_samples() {
    let (_numbers, server) = serve(busy());
    let mut browser = watching(&server, 1280, "light");
    let tile = |name: &str| {
        format!(
            "[...document.querySelectorAll('#tiles div')].find((it) => it.firstChild.textContent === '{name}')?.children[1].textContent ?? ''"
        )
    };
    // 41 000 of 44 200 are hits, on both cards, all the time.
    within(SOON, "the hit rate", || {
        let text = browser.text(&tile("Hit rate"));
        text.starts_with("92.7") || text.starts_with("92.8")
    });
    assert_eq!(browser.text(&tile("Card memory")), "462\u{202f}MB");
    assert_eq!(browser.value("document.querySelectorAll('#cards tbody tr').length"), 2);
    within(SOON, "reasons by their rate", || {
        let first =
            browser.value("document.querySelector('#why tbody th')?.firstChild.textContent ?? ''");
        first == "cookie"
    });
    // Classes are stacked: each begins where the one below ends.
    assert_eq!(browser.value("document.querySelectorAll('#bus path.area').length"), 5);
    assert_eq!(browser.text("document.getElementById('state').textContent"), "Caching");
}

#[test]
fn states_are_told() {
    let (numbers, server) = serve(busy());
    let mut browser = watching(&server, 1280, "light");
    let state = "document.getElementById('state').textContent";
    let set = |browser: &mut Browser, change: fn(&mut Sample), expected: &str| {
        change(numbers.sample.lock().unwrap().as_mut().unwrap());
        within(SOON, expected, || browser.text(state).contains(expected));
    };
    set(&mut browser, |sample| sample.bypass_on = true, "Bypass on");
    set(&mut browser, |sample| sample.bypass_on = false, "Caching");
    set(
        &mut browser,
        |sample| sample.not_caching = Some("the watcher's lease has expired".into()),
        "lease has expired",
    );
    set(
        &mut browser,
        |sample| sample.watcher.unavailable = Some("no eBPF".into()),
        "nothing is watched",
    );
    // It is read out when it changes, and only then.
    browser.value(
        "new MutationObserver((all) => { window.changes = (window.changes ?? 0) + all.length; }) \
                   .observe(document.getElementById('state'), { childList: true, subtree: true, characterData: true })",
    );
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(browser.value("window.changes ?? 0"), 0);
}

#[test]
fn a_lost_connection_is_told_and_found_again() {
    let (numbers, server) = serve(busy());
    let mut browser = watching(&server, 1280, "light");
    let port = server.address().port();
    let banner = "document.getElementById('banner').hidden ? '' : document.getElementById('banner').textContent";
    assert_eq!(browser.text(banner), "");
    drop(server);
    within(SOON, "the banner", || browser.text(banner).contains("Connection lost"));
    let server = serve_at(&numbers, port);
    within(SOON, "a connection", || browser.text(banner).is_empty());
    await_points(&mut browser);
    *numbers.sample.lock().unwrap() = Err("the card does not answer".into());
    within(SOON, "a card that does not answer", || {
        browser.text(banner).contains("does not answer")
    });
    *numbers.sample.lock().unwrap() = Ok(busy());
    within(SOON, "a card that does", || browser.text(banner).is_empty());
    drop(server);
}

#[test]
fn keys_read_curves_and_pause() {
    let (_numbers, server) = serve(busy());
    let mut browser = watching(&server, 1280, "light");
    let live = "document.querySelector('#requests [aria-live]').textContent";
    assert_eq!(browser.text(live), "");
    let mut reached = false;
    for _ in 0..10 {
        browser.press("Tab");
        reached |= browser.value("document.activeElement.matches('#requests .plot')") == true;
        if reached {
            break;
        }
    }
    assert!(reached);
    browser.press("ArrowLeft");
    let text = browser.text(live);
    assert!(text.contains("hits ") && text.contains("bypasses "), "{text}");
    assert_eq!(browser.value("document.querySelectorAll('#requests .cursor').length"), 1);
    browser.press("Escape");
    assert_eq!(browser.value("document.querySelectorAll('#requests .cursor').length"), 0);
    // What stands still does so for good.
    browser.point("#pause", true);
    assert_eq!(
        browser.text("document.getElementById('pause').getAttribute('aria-pressed')"),
        "true"
    );
    let tiles = "document.getElementById('tiles').textContent";
    let before = browser.text(tiles);
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(browser.text(tiles), before);
    browser.point("#pause", true);
    within(SOON, "new figures", || browser.text(tiles) != before);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
