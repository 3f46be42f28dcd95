//! The lists: what is used most, why replies do not come from the card, and the cards.

use nicache_admin::Mode;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Text;
use ratatui::widgets::{Block, Borders, Row, Table, TableState};

use super::model::{List, Model, bytes_per_s};
use super::text::{bytes, percent, rate, shown};

/// From this width on, objects and reasons stand side by side; below, only the list that keys move
/// in is there.
const SIDE_BY_SIDE: u16 = 76;
/// Columns that the cards have room for in a narrow list.
const CARDS_NARROW: u16 = 70;

/// Draws as many of them as there is room for.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    if area.width < SIDE_BY_SIDE {
        return draw_one(frame, area, model, model.list);
    }
    let wanted = model.cards().len() as u16 + 2;
    let cards_height = wanted.min(area.height / 3);
    let cards_height = if cards_height >= 3 { cards_height } else { 0 };
    let [above, cards] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(cards_height)]).areas(area);
    let [objects, reasons] =
        Layout::horizontal([Constraint::Percentage(58), Constraint::Percentage(42)])
            .spacing(1)
            .areas(above);
    draw_one(frame, objects, model, List::Objects);
    draw_one(frame, reasons, model, List::Reasons);
    if cards_height > 0 {
        draw_one(frame, cards, model, List::Cards);
    }
}

fn draw_one(frame: &mut Frame<'_>, area: Rect, model: &Model, list: List) {
    if area.is_empty() {
        return;
    }
    match list {
        List::Objects => objects(frame, area, model),
        List::Reasons => reasons(frame, area, model),
        List::Cards => cards(frame, area, model),
    }
}

fn right(text: String) -> Text<'static> {
    Text::from(text).right_aligned()
}

fn objects(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let objects = model.objects();
    let is_wide = area.width >= 60;
    let rows = objects.iter().map(|object| {
        let name = format!("{}{}", shown(&object.host), shown(&object.target));
        let kind = if object.is_dynamic { "dynamic" } else { "" };
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        let size = bytes(object.body_bytes as f64);
        let mut cells = vec![Text::from(name), right(rate(object.hits_per_s))];
        if is_wide {
            cells.extend([
                right(format!("{}/s", bytes(bytes_per_s(object)))),
                right(size),
                Text::from(kind),
            ]);
        }
        Row::new(cells)
    });
    let mut widths = vec![Constraint::Fill(1), Constraint::Length(8)];
    let mut heads = vec![Text::from("object"), right("hits/s".into())];
    if is_wide {
        widths.extend([Constraint::Length(10), Constraint::Length(8), Constraint::Length(8)]);
        heads.extend([right("bytes/s".into()), right("size".into()), Text::from("")]);
    }
    let title = match model.now.as_ref().map(|sample| sample.mode) {
        Some(Mode::Serve | Mode::Forward | Mode::Nfs) => {
            " Objects (told by `nicache run` only) ".to_owned()
        }
        _ => format!(" Hottest objects, by {} ", model.order.label()),
    };
    table(
        frame,
        area,
        model,
        List::Objects,
        title,
        Table::new(rows, widths).header(Row::new(heads)),
    );
}

fn reasons(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let reasons = model.reasons();
    let rows = reasons.iter().map(|reason| {
        let name = format!("{} ({})", shown(&reason.name), reason.kind);
        Row::new([Text::from(name), right(rate(reason.per_s)), right(rate_of_count(reason.count))])
    });
    let widths = [Constraint::Fill(1), Constraint::Length(6), Constraint::Length(7)];
    let heads = Row::new([Text::from("reason"), right("per s".into()), right("so far".into())]);
    let title = " Why not from the card ".to_owned();
    table(frame, area, model, List::Reasons, title, Table::new(rows, widths).header(heads));
}

#[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
fn rate_of_count(count: u64) -> String {
    if count < 100_000 { count.to_string() } else { rate(count as f64) }
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn cards(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let is_wide = area.width >= CARDS_NARROW;
    let cards = model.cards();
    let rows = cards.iter().map(|(card, change)| {
        let hits = change.as_ref().map_or_else(|| "–".to_owned(), |change| rate(change.hits_per_s));
        let share = percent(change.as_ref().and_then(|change| change.hit_rate));
        let memory =
            format!("{}/{}", bytes(card.memory_used_bytes as f64), bytes(card.memory_bytes as f64));
        let mut cells = vec![Text::from(shown(&card.id)), right(hits), right(share), right(memory)];
        if is_wide {
            let numbers = [card.entries, card.flows, card.evictions, card.drops];
            cells.extend(numbers.map(|number| right(rate_of_count(number))));
        }
        Row::new(cells)
    });
    let mut widths = vec![
        Constraint::Fill(1),
        Constraint::Length(7),
        Constraint::Length(8),
        Constraint::Length(17),
    ];
    let mut heads = vec![
        Text::from("card"),
        right("hits/s".into()),
        right("hit rate".into()),
        right("memory".into()),
    ];
    if is_wide {
        widths.extend([8, 7, 8, 7].map(Constraint::Length));
        heads.extend(["entries", "conns", "evicted", "dropped"].map(|head| right(head.into())));
    }
    table(
        frame,
        area,
        model,
        List::Cards,
        " Cards ".to_owned(),
        Table::new(rows, widths).header(Row::new(heads)),
    );
}

fn table(
    frame: &mut Frame<'_>,
    area: Rect,
    model: &Model,
    list: List,
    title: String,
    table: Table<'_>,
) {
    let is_chosen = model.list == list;
    let title_style = if is_chosen {
        Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED)
    } else {
        Style::new()
    };
    let block =
        Block::new().borders(Borders::TOP).border_style(Style::new().add_modifier(Modifier::DIM));
    let block = block.title_style(title_style.remove_modifier(Modifier::DIM)).title(title);
    let mut state = TableState::new().with_selected(is_chosen.then(|| model.selected(list)));
    let chosen = Style::new().add_modifier(Modifier::REVERSED);
    frame.render_stateful_widget(table.block(block).row_highlight_style(chosen), area, &mut state);
}
