//! The terminal: keys in, drawings out, and as it was at the end, whatever ends it.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::model::{Key, Model};
use super::{source, view};

/// How long a new sample may wait to be drawn, and a signal to be seen.
const WAIT: Duration = Duration::from_millis(50);

/// Draws until a key or a signal ends it.
pub(super) fn run(name: Option<&str>, interval: Duration) -> Result<ExitCode> {
    // A name that is wrong is told as any other command would.
    source::take(name)?;
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&ended))?;
    }
    let samples = source::start(name, interval)?;
    let screen = Screen::open()?;
    let mut terminal =
        ratatui::Terminal::new(ratatui::backend::CrosstermBackend::new(std::io::stdout()))?;
    let mut model = Model::default();
    let mut is_old = true;
    while !model.has_ended() && !ended.load(Ordering::Relaxed) {
        match samples.try_recv() {
            Ok(sample) => {
                model.handle_sample(sample.map(|sample| *sample));
                is_old = true;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => bail!("the thread that takes samples has ended"),
        }
        if is_old {
            terminal.draw(|frame| view::draw(frame, &model))?;
            is_old = false;
        }
        if event::poll(WAIT)? {
            match event::read()? {
                Event::Key(pressed) => {
                    if let Some(key) = meaning(pressed) {
                        model.handle_key(key);
                        is_old = true;
                    }
                }
                Event::Resize(..) => is_old = true,
                _ => {}
            }
        }
    }
    drop(screen);
    Ok(ExitCode::SUCCESS)
}

/// The terminal while it is drawn on.
struct Screen;

impl Screen {
    fn open() -> Result<Self> {
        // Also has a panic leave the terminal as it was.
        ratatui::try_init().context("this terminal cannot be drawn on")?;
        Ok(Self)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn meaning(pressed: KeyEvent) -> Option<Key> {
    if pressed.kind == KeyEventKind::Release {
        return None;
    }
    Some(match pressed.code {
        KeyCode::Char('c') if pressed.modifiers.contains(KeyModifiers::CONTROL) => Key::Quit,
        KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
        KeyCode::Char('p' | ' ') => Key::Pause,
        KeyCode::Char('s') => Key::Sort,
        KeyCode::Char('?' | 'h') => Key::Help,
        KeyCode::Up | KeyCode::Char('k') => Key::Up,
        KeyCode::Down | KeyCode::Char('j') => Key::Down,
        KeyCode::Left | KeyCode::BackTab => Key::Left,
        KeyCode::Right | KeyCode::Tab => Key::Right,
        _ => return None,
    })
}
