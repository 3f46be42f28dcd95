//! The model on a screen of any size. What does not fit is left out, the least important first.

use std::time::Duration;

use nicache_admin::{Change, Mode, Sample};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Sparkline, Wrap};

use super::lists;
use super::model::{Model, PAST_MAX};
use super::text::{bytes, percent, rate, shown, span};

const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const KEYS: &str = " q quit  p pause  s sort  ←→ list  ↑↓ move  ? help";
const HELP: &str = "\
q  Esc     end
p  Space   pause, and go on
s          sort objects: hits/s, bytes/s, size, name
←  →       another list: objects, reasons, cards
↑  ↓       move in it
?          this

passes     the card left the request to the server
not kept   the reply did not become an entry: the watcher
           cannot vouch for it, it is private, or the card
           had a reason; `nicache why URL` says more

Any of these keys closes this.";

/// Lines that lists need to be worth it: head, names of columns, a line.
const LIST_LINES_MIN: u16 = 3;

/// Draws it.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let area = frame.area();
    if area.is_empty() {
        return;
    }
    match &model.now {
        Some(sample) => draw_sample(frame, area, model, sample),
        None => {
            let text = model.error.as_deref().unwrap_or("asking nicache ...");
            frame.render_widget(Paragraph::new(shown(text)).wrap(Wrap { trim: true }), area);
        }
    }
    if model.has_help {
        draw_help(frame, area);
    }
}

fn draw_sample(frame: &mut Frame<'_>, area: Rect, model: &Model, sample: &Sample) {
    let height = area.height;
    // From this height on, each is there.
    let lines = |least: u16, wanted: u16| if height >= least { wanted } else { 0 };
    let parts = [
        1,
        lines(2, 1),
        lines(3, height.saturating_sub(2).min(4)),
        lines(9, 1),
        lines(10, 1),
        lines(8, 1),
    ];
    let used: u16 = parts.iter().sum();
    let rest = height.saturating_sub(used);
    let lists_height = if rest >= LIST_LINES_MIN { rest } else { 0 };
    let [title, state, rates, bus, memory, keys] = parts;
    let heights = [title, state, rates, bus, memory, lists_height].map(Constraint::Length);
    let [title, state, rates, bus, memory, lists] = Layout::vertical(heights).areas(area);
    frame.render_widget(title_line(model, sample), title);
    frame.render_widget(state_line(model, sample), state);
    draw_rates(frame, rates, model, sample);
    frame.render_widget(bus_line(model), bus);
    frame.render_widget(memory_line(sample), memory);
    lists::draw(frame, lists, model);
    if keys > 0 {
        let bottom = Rect { y: area.y + height - 1, height: 1, ..area };
        frame.render_widget(Paragraph::new(KEYS).style(DIM), bottom);
    }
}

fn title_line<'a>(model: &Model, sample: &Sample) -> Line<'a> {
    let mut line = Line::from(Span::styled(format!("nicache {}", shown(&sample.name)), BOLD));
    if model.is_paused {
        line.push_span(Span::styled(
            "  PAUSED",
            Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD),
        ));
    }
    let urls = sample.urls.join(" ");
    let up = span(Duration::from_millis(sample.uptime_ms));
    line.push_span(format!("  {}  up {up}  ", shown(&urls)));
    line.push_span(Span::styled(shown(&sample.serves), DIM));
    line
}

fn state_line<'a>(model: &Model, sample: &Sample) -> Line<'a> {
    let said = |text: String, color: Color| {
        Line::from(Span::styled(text, Style::new().fg(color).add_modifier(Modifier::BOLD)))
    };
    if let Some(error) = &model.error {
        return said(format!("no answer: {}", shown(error)), Color::Red);
    }
    if sample.bypass_on {
        return said("BYPASS ON: everything passes to the server".to_owned(), Color::Yellow);
    }
    let unavailable = sample.watcher.unavailable.as_ref().or(sample.not_caching.as_ref());
    if let Some(reason) = unavailable {
        return said(format!("not caching: {}", shown(reason)), Color::Red);
    }
    let mut line = said("caching".to_owned(), Color::Green);
    let watcher = if sample.watcher.kind.is_empty() { "?" } else { &sample.watcher.kind };
    line.push_span(format!("  watched by {}", shown(watcher)));
    for database in &sample.databases {
        let (text, style) = match database.in_step {
            true => (format!("  {} in step", shown(&database.database)), Style::new()),
            false => (
                format!("  {} OUT OF STEP", shown(&database.database)),
                Style::new().fg(Color::Red),
            ),
        };
        line.push_span(Span::styled(text, style));
    }
    if sample.restarts > 0 {
        line.push_span(format!("  started again {} times", sample.restarts));
    }
    line
}

type OfChange = fn(&Change) -> f64;

/// A name, a number, and how it was: `requests 101 k/s ▁▂▃`.
fn draw_rates(frame: &mut Frame<'_>, area: Rect, model: &Model, sample: &Sample) {
    let change = model.change.as_ref();
    let of = |value: OfChange| change.map(value);
    let number = |value: Option<f64>, show: fn(f64) -> String| {
        value.map_or_else(|| "–".to_owned(), |value| format!("{}/s", show(value)))
    };
    let (looked, found) = match sample.mode {
        Mode::Run => ("requests", "hit rate"),
        Mode::Serve | Mode::Nfs => ("requests", "blocks found"),
        Mode::Forward => ("packets", "from the card"),
    };
    let rows: [(&str, String, Color, OfChange, Option<u64>); 4] = [
        (
            looked,
            number(of(|change| change.requests_per_s), rate),
            Color::Cyan,
            |change| change.requests_per_s,
            None,
        ),
        (
            found,
            percent(change.and_then(|change| change.hit_rate)),
            Color::Green,
            |change| change.hit_rate.unwrap_or(0.0) * 1000.0,
            Some(1000),
        ),
        (
            "from card",
            number(of(|change| change.sent_bytes_per_s), bytes),
            Color::Blue,
            |change| change.sent_bytes_per_s,
            None,
        ),
        ("over bus", number(of(bus_total), bytes), Color::Magenta, bus_total, None),
    ];
    for (row, (name, value, color, of, max)) in (0..area.height).zip(rows) {
        let line = Rect { y: area.y + row, height: 1, ..area };
        let [label, figure, curve] =
            Layout::horizontal([Constraint::Max(13), Constraint::Max(13), Constraint::Fill(1)])
                .areas(line);
        frame.render_widget(Paragraph::new(name), label);
        frame.render_widget(Paragraph::new(value).style(BOLD).right_aligned(), figure);
        let past = past(model, curve.width.saturating_sub(1), of);
        let curve =
            Rect { x: curve.x + curve.width.min(1), width: curve.width.saturating_sub(1), ..curve };
        let mut line = Sparkline::default().data(&past).style(Style::new().fg(color));
        if let Some(max) = max {
            line = line.max(max);
        }
        frame.render_widget(line, curve);
    }
}

fn bus_total(change: &Change) -> f64 {
    change.bus_bytes_per_s.iter().map(|(_, bytes)| bytes).sum()
}

/// The newest values that fit, the last at the right end.
fn past(model: &Model, width: u16, of: OfChange) -> Vec<u64> {
    let width = usize::from(width).min(PAST_MAX);
    let values: Vec<u64> =
        model.past.iter().rev().take(width).map(|change| of(change).round() as u64).collect();
    let missing = width - values.len();
    std::iter::repeat_n(0, missing).chain(values.into_iter().rev()).collect()
}

fn bus_line<'a>(model: &Model) -> Line<'a> {
    let mut line = Line::from("bus ".to_owned());
    let Some(change) = &model.change else { return line };
    for (class, value) in &change.bus_bytes_per_s {
        line.push_span(Span::styled(format!(" {} ", shown(&class.replace('_', " "))), DIM));
        line.push_span(format!("{}/s", bytes(*value)));
    }
    line
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn memory_line<'a>(sample: &Sample) -> Line<'a> {
    let total = sample.total();
    let (used, all) = (total.memory_used_bytes as f64, total.memory_bytes as f64);
    let share = if all > 0.0 { used / all } else { 0.0 };
    let full = (share * 10.0).round().clamp(0.0, 10.0) as usize;
    let mut line = Line::from("memory  ".to_owned());
    line.push_span(Span::styled("█".repeat(full), Style::new().fg(Color::Blue)));
    line.push_span(Span::styled("░".repeat(10 - full), DIM));
    let grouped = crate::numbers::grouped;
    line.push_span(format!(
        " {} of {}  {} entries  {} connections  {} evicted",
        bytes(used),
        bytes(all),
        grouped(total.entries),
        grouped(sample.connections),
        grouped(total.evictions)
    ));
    line
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let width = HELP.lines().map(|line| line.chars().count()).max().unwrap_or(0) as u16 + 4;
    let height = HELP.lines().count() as u16 + 2;
    let box_area = Rect {
        x: area.x + area.width.saturating_sub(width) / 2,
        y: area.y + area.height.saturating_sub(height) / 2,
        width: width.min(area.width),
        height: height.min(area.height),
    };
    frame.render_widget(Clear, box_area);
    let block = Block::bordered().title(" Keys ");
    frame.render_widget(Paragraph::new(HELP).block(block), box_area);
}

#[cfg(test)]
mod tests {
    use nicache_admin::{
        CardSample, Crossing, DatabaseSample, Direction, HotObject, WatcherSample,
    };
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::model::Key;
    use super::*;

    fn sample(second: u64) -> Sample {
        let crossing = |class: &str, rate: u64| Crossing {
            class: class.into(),
            direction: Direction::Either,
            bytes: rate * second,
        };
        let card = |id: &str, hits: u64| CardSample {
            id: id.into(),
            hits: hits * second * second / 40,
            misses: 300 * second,
            bypasses: 100 * second,
            sent_bytes: 101_000_000 * (second % 9) * second,
            entries: 4096,
            memory_used_bytes: 40 << 20,
            memory_bytes: 64 << 20,
            flows: 17,
            bus: vec![crossing("content", 3_000_000), crossing("network_headers", 200_000)],
            ..CardSample::default()
        };
        let object = |target: &str, hits_per_s| HotObject {
            host: "www.example.com".into(),
            target: target.into(),
            hits_per_s,
            body_bytes: 7300,
            is_dynamic: target.contains('?'),
        };
        let counters = [
            ("bypass_cookie", 100 * second),
            ("fill_refused_wrote", 3),
            ("fill_aborted_too_large", 2 * second),
        ];
        Sample {
            name: "shop".into(),
            pid: 9,
            uptime_ms: second * 1000,
            serves: "nginx -g daemon off;".into(),
            urls: vec!["http://10.77.0.2/".into()],
            watcher: WatcherSample { kind: "kernel".into(), unavailable: None },
            connections: 34,
            cards: vec![card("0", 50_000), card("1", 30_000)],
            counters: counters.map(|(name, value)| (name.to_owned(), value)).into(),
            hottest: Some(vec![
                object("/", 40_000.0),
                object("/index.php?id=\u{1b}[2J", 12_345.6),
                object("/assets/app-5f1c2d3e4b5a69788796a5b4c3d2e1f0.js", 2000.0),
            ]),
            ..Sample::default()
        }
    }

    fn model() -> Model {
        let mut model = Model::default();
        for second in 1..=40 {
            model.handle_sample(Ok(sample(second)));
        }
        model
    }

    fn drawn(model: &Model, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, model)).unwrap();
        let buffer = terminal.backend().buffer();
        let mut text = String::new();
        for line in buffer.content().chunks(usize::from(width)) {
            let line: String = line.iter().map(ratatui::buffer::Cell::symbol).collect();
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// Compares with the drawing that is kept. `NICACHE_SNAPSHOTS=write` writes it anew.
    fn check(name: &str, text: &str) {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
        let path = folder.join(name);
        if std::env::var("NICACHE_SNAPSHOTS").is_ok_and(|it| it == "write") {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, text).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == text,
            "{name} is not as kept; if that is right, set NICACHE_SNAPSHOTS=write once. Now:\n{text}"
        );
    }

    #[test]
    fn drawings_are_as_kept() {
        let mut model = model();
        check("top-80x24.txt", &drawn(&model, 80, 24));
        check("top-120x40.txt", &drawn(&model, 120, 40));
        check("top-40x12.txt", &drawn(&model, 40, 12));
        model.handle_key(Key::Help);
        model.handle_key(Key::Pause);
        check("top-help.txt", &drawn(&model, 80, 24));
    }

    #[test]
    fn any_size_can_be_drawn_in_any_state() {
        let full = model();
        let mut helped = model();
        helped.handle_key(Key::Help);
        let mut broken = model();
        broken.handle_sample(Err("the card does not answer".into()));
        let mut fresh = Model::default();
        fresh.handle_sample(Ok(Sample::default()));
        let mut gone = Model::default();
        gone.handle_sample(Err("no nicache is running".into()));
        for model in [&full, &helped, &broken, &fresh, &gone, &Model::default()] {
            for width in (1..=24).chain([39, 40, 59, 60, 75, 76, 77, 99, 100, 250]) {
                for height in (1..=30).chain([60]) {
                    drawn(model, width, height);
                }
            }
        }
    }

    #[test]
    fn the_state_is_told() {
        let told = |change: fn(&mut Sample)| {
            let mut model = Model::default();
            let mut sample = sample(1);
            change(&mut sample);
            model.handle_sample(Ok(sample));
            drawn(&model, 100, 24)
        };
        assert!(told(|_| {}).contains("caching  watched by kernel"));
        assert!(told(|sample| sample.bypass_on = true).contains("BYPASS ON"));
        assert!(
            told(|sample| sample.not_caching = Some("lease".into())).contains("not caching: lease")
        );
        let with_database = told(|sample| {
            sample.databases =
                vec![DatabaseSample { database: "db:3306".into(), ..DatabaseSample::default() }];
        });
        assert!(with_database.contains("db:3306 OUT OF STEP"));
        let mut lost = model();
        lost.handle_sample(Err("nobody".into()));
        assert!(drawn(&lost, 80, 24).contains("no answer: nobody"));
    }

    #[test]
    fn what_clients_choose_does_not_reach_the_terminal_as_it_is() {
        let mut model = model();
        model.handle_key(Key::Down);
        let text = drawn(&model, 200, 40);
        assert!(!text.contains('\u{1b}') && text.contains(r"/index.php?id=\u{1b}[2J"), "{text}");
    }
}
