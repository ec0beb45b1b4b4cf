//! What is shown, and what keys do to it.

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use spillway_snapshot::heat::HeatMap;
use spillway_snapshot::reader::Seen;

use crate::pool::Pools;
use crate::top::history::History;
use crate::top::palette::Palette;
use crate::top::rates::{Key, Kind, Looks, Row};
use crate::top::sort::Sort;
use crate::top::{detail, help, list, pools};

/// Which screen is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Screen {
    List,
    Detail,
    Pools,
}

/// What is shown, and how.
pub struct App {
    looks: Looks,
    rows: Vec<Row>,
    history: History,
    /// The map of the row that was shown in detail at the last look.
    heat: Option<(Key, HeatMap)>,
    sort: Sort,
    /// The order of rows is turned round.
    is_reversed: bool,
    /// The row that is chosen; the first where it is none of those that are there.
    chosen: Option<Key>,
    screen: Screen,
    helps: bool,
    has_looked: bool,
    palette: Palette,
    /// Time between looks, in seconds.
    interval_s: f64,
    /// What is above the list's first line.
    offset: usize,
    /// Those that were named.
    pools: Pools,
    /// What is above the first line of their screen.
    pools_offset: usize,
}

impl App {
    /// Nothing has been seen yet.
    pub fn new(palette: Palette, interval_s: f64, pools: Pools) -> Self {
        Self {
            looks: Looks::default(),
            rows: Vec::new(),
            history: History::default(),
            heat: None,
            sort: Sort::default(),
            is_reversed: false,
            chosen: None,
            screen: Screen::List,
            helps: false,
            has_looked: false,
            palette,
            interval_s,
            offset: 0,
            pools,
            pools_offset: 0,
        }
    }

    /// The row of which a map is wanted with the next look.
    pub fn wanted(&self) -> Option<Key> {
        self.chosen.filter(|_| self.screen == Screen::Detail)
    }

    /// Takes a further look, and the map of a row.
    pub fn take(&mut self, seen: Vec<Seen>, heat: Option<(Key, HeatMap)>) {
        self.heat = heat;
        self.looks.take(seen);
        self.has_looked = true;
        self.history.note(&self.looks.seen().rows);
        self.sort_rows();
    }

    /// Runs in their order, each followed by its processes in theirs.
    fn sort_rows(&mut self) {
        let mut rows = self.looks.seen().rows.clone();
        let ranks = self.sort.ranks(&rows, self.is_reversed);
        rows.sort_by_cached_key(|row| {
            let run = Key { process_pid: None, ..row.key };
            (ranks.get(&run).copied(), run, row.kind == Kind::Process, ranks.get(&row.key).copied(), row.key)
        });
        self.rows = rows;
    }

    /// Where the chosen row is.
    fn chosen_at(&self) -> usize {
        self.rows.iter().position(|row| Some(row.key) == self.chosen).unwrap_or(0)
    }

    fn choose(&mut self, at: usize) {
        self.chosen = self.rows.get(at.min(self.rows.len().saturating_sub(1))).map(|row| row.key);
    }

    /// Does what a key asks for; false where it ends all.
    pub fn press(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return true;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if is_control => return false,
            _ if self.helps => self.helps = false,
            KeyCode::Char('q') if self.screen == Screen::List => return false,
            KeyCode::Char('?' | 'h') => self.helps = true,
            KeyCode::Char('p') => self.screen = Screen::Pools,
            code if self.screen == Screen::Pools && self.scroll(code) => {}
            KeyCode::Char('q') | KeyCode::Esc | KeyCode::Backspace => self.screen = Screen::List,
            KeyCode::Enter if !self.rows.is_empty() => {
                self.choose(self.chosen_at());
                self.screen = Screen::Detail;
            }
            KeyCode::Up | KeyCode::Char('k') => self.choose(self.chosen_at().saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.choose(self.chosen_at() + 1),
            KeyCode::PageUp => self.choose(self.chosen_at().saturating_sub(10)),
            KeyCode::PageDown => self.choose(self.chosen_at() + 10),
            KeyCode::Home => self.choose(0),
            KeyCode::End => self.choose(usize::MAX),
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.sort_rows();
            }
            KeyCode::Char('r') => {
                self.is_reversed = !self.is_reversed;
                self.sort_rows();
            }
            _ => {}
        }
        true
    }

    /// Scrolls the screen of pools; whether the key is one for that.
    fn scroll(&mut self, code: KeyCode) -> bool {
        let offset = self.pools_offset;
        self.pools_offset = match code {
            KeyCode::Up | KeyCode::Char('k') => offset.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => offset + 1,
            KeyCode::PageUp => offset.saturating_sub(10),
            KeyCode::PageDown => offset + 10,
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX,
            KeyCode::Enter => offset,
            _ => return false,
        };
        true
    }

    /// Draws the screen that is to be seen.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        if area.width < 10 || area.height < 3 {
            return;
        }
        if self.helps {
            return help::draw(frame, self.palette);
        }
        let chosen_at = self.chosen_at();
        match (self.screen, self.rows.get(chosen_at)) {
            (Screen::Detail, Some(row)) if Some(row.key) == self.chosen => {
                let heat = self.heat.as_ref().filter(|(key, _)| *key == row.key).map(|(_, map)| map);
                let view = detail::View {
                    row,
                    history: &self.history,
                    heat,
                    palette: self.palette,
                    interval_s: self.interval_s,
                };
                detail::draw(frame, &view);
            }
            (Screen::Detail, _) => detail::draw_gone(frame, self.palette),
            (Screen::Pools, _) => {
                self.pools.seen(|seen| pools::draw(frame, seen, self.palette, &mut self.pools_offset));
            }
            (Screen::List, _) => {
                let width = area.width.into();
                let view = list::View {
                    rows: &self.rows,
                    silent: &self.looks.seen().silent,
                    chosen_at,
                    sort: self.sort,
                    is_reversed: self.is_reversed,
                    has_looked: self.has_looked,
                    palette: self.palette,
                    pools: self.pools.seen(|seen| pools::summaries(seen, self.palette, width)),
                };
                list::draw(frame, &view, &mut self.offset);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::pool::PoolsArgs;
    use crate::top::rates::tests::{lender_seen_twice, seen_twice};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::style::{Color, Modifier};

    fn app(looks: Looks) -> App {
        let pools = Pools::watch(&PoolsArgs::default(), Duration::ZERO).unwrap();
        let mut app = App::new(Palette::new(true), 1.0, pools);
        app.looks = looks;
        app.has_looked = true;
        app.history.note(&app.looks.seen().rows);
        app.sort_rows();
        app
    }

    fn screen(app: &mut App, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| app.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    fn press(app: &mut App, code: KeyCode) -> bool {
        app.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn a_run_its_processes_and_its_stores_are_on_one_screen() {
        let mut app = app(seen_twice());
        let shown = screen(&mut app, 80, 24);
        for text in
            ["PID", "LOCAL", "FLT/s", "P99", "LOST", "parent", "child", "1.0k", "50%", "compressed:", "full"]
        {
            assert!(shown.contains(text), "no {text} in\n{shown}");
        }
        let at = |text: &str| shown.find(text).unwrap();
        assert!(at("child") < at("parent"), "the one with more memory first\n{shown}");
    }

    #[test]
    fn a_donor_is_on_the_list_and_told_in_detail() {
        let mut app = app(lender_seen_twice());
        let shown = screen(&mut app, 80, 24);
        for text in ["1 donor", "donor", "4.0M", "64M", "1.5M", "48M promised, 16M free", "1 refused"] {
            assert!(shown.contains(text), "no {text} in\n{shown}");
        }
        press(&mut app, KeyCode::Enter);
        let shown = screen(&mut app, 80, 24);
        for text in ["####", "nbd://127.0.0.1:10809", "written 1.5M/s", "free; never", "client 127.0.0.1"] {
            assert!(shown.contains(text), "no {text} in\n{shown}");
        }
        for (width, height) in [(40, 10), (20, 5), (10, 3), (200, 60)] {
            screen(&mut app, width, height);
        }
    }

    #[test]
    fn keys_choose_sort_show_and_end() {
        let mut app = app(seen_twice());
        assert!(press(&mut app, KeyCode::Down));
        assert_eq!(app.rows[app.chosen_at()].name, "child");
        assert!(press(&mut app, KeyCode::Enter));
        let shown = screen(&mut app, 80, 24);
        assert!(shown.contains("child") && shown.contains("faults a second"), "{shown}");
        for text in [
            "time lost 0.0%",
            "local 30M",
            "far 2.0M",
            "written a second",
            "fetched: 0 pages, 0 of them ahead",
        ] {
            assert!(shown.contains(text), "no {text} in\n{shown}");
        }
        assert!(press(&mut app, KeyCode::Char('?')));
        assert!(screen(&mut app, 80, 24).contains("Enter"));
        assert!(press(&mut app, KeyCode::Char('x')), "any key ends the help");
        assert!(press(&mut app, KeyCode::Char('q')), "back to the list");
        for _ in 0..9 {
            assert!(press(&mut app, KeyCode::Char('s')) && press(&mut app, KeyCode::Down));
        }
        assert_eq!(app.sort, Sort::Pid);
        assert_eq!(app.rows.iter().map(|row| row.pid).collect::<Vec<_>>(), [8, 8, 9]);
        assert_eq!(app.chosen_at(), 2);
        assert!(press(&mut app, KeyCode::Char('r')));
        assert_eq!(
            app.rows.iter().map(|row| row.pid).collect::<Vec<_>>(),
            [8, 9, 8],
            "a run before its processes"
        );
        assert!(screen(&mut app, 80, 24).contains("s sort: PID, r reversed"));
        assert!(press(&mut app, KeyCode::Char('r')));
        press(&mut app, KeyCode::End);
        press(&mut app, KeyCode::Enter);
        // It ends while it is looked at.
        app.looks = Looks::default();
        app.sort_rows();
        assert!(screen(&mut app, 80, 24).contains("has ended"));
        press(&mut app, KeyCode::Esc);
        assert!(!app.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!press(&mut app, KeyCode::Char('q')));
    }

    #[test]
    fn what_is_shown_in_detail_has_a_map_of_its_memory() {
        let mut app = app(seen_twice());
        assert_eq!(app.wanted(), None, "the list has none");
        press(&mut app, KeyCode::Down);
        press(&mut app, KeyCode::Enter);
        let wanted = app.wanted().unwrap();
        assert_eq!(wanted.process_pid, Some(9));
        app.heat = Some((wanted, crate::top::heat::tests::map()));
        let shown = screen(&mut app, 80, 24);
        for text in ["a sign for 1.0M", "# hot 1.0M", "#- P_", "faults a second"] {
            assert!(shown.contains(text), "no {text} in\n{shown}");
        }
        press(&mut app, KeyCode::Esc);
        press(&mut app, KeyCode::Up);
        press(&mut app, KeyCode::Enter);
        assert!(!screen(&mut app, 80, 24).contains("a sign for"), "it is another's");
        // Where there is little room, what happens matters more.
        press(&mut app, KeyCode::Esc);
        press(&mut app, KeyCode::Down);
        press(&mut app, KeyCode::Enter);
        assert!(!screen(&mut app, 80, 16).contains("a sign for"));
    }

    #[test]
    fn pools_have_a_line_each_and_a_screen_of_their_own() {
        let mut app = app(seen_twice());
        assert!(!screen(&mut app, 80, 24).contains("p pools"), "none was named");
        press(&mut app, KeyCode::Char('p'));
        assert!(screen(&mut app, 80, 24).contains("--pool"));
        press(&mut app, KeyCode::Esc);
        let names = ["127.0.0.1:1,127.0.0.1:2", "etcd://127.0.0.1:3/lab"];
        app.pools = Pools::watch(&PoolsArgs::of(&names), Duration::ZERO).unwrap();
        for (width, keys) in [(80, "p pools  s sort"), (40, "Enter detail  p pools  ? help")] {
            let shown = screen(&mut app, width, 24);
            assert!(shown.contains(keys) && shown.contains("127.0.0.1:1"), "{shown}");
            press(&mut app, KeyCode::Char('p'));
            let shown = screen(&mut app, width, 24);
            assert!(names.iter().all(|name| shown.contains(name)) && shown.contains("q back"), "{shown}");
            for key in [KeyCode::End, KeyCode::Down, KeyCode::Up, KeyCode::Enter, KeyCode::PageUp] {
                assert!(press(&mut app, key));
                assert!(screen(&mut app, width, 4).contains("q back"), "{key:?}");
            }
            assert!(press(&mut app, KeyCode::Char('q')) && screen(&mut app, width, 24).contains("parent"));
        }
    }

    #[test]
    fn every_screen_fits_whatever_the_terminal() {
        let mut app = app(seen_twice());
        app.heat = app.rows.get(1).map(|row| (row.key, crate::top::heat::tests::map()));
        for (width, height) in [(80, 24), (40, 24), (40, 10), (200, 60), (20, 5), (10, 3), (1, 1), (79, 4)] {
            for keys in ["", "\n", "p", "?"] {
                for key in keys.chars() {
                    press(&mut app, if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) });
                }
                screen(&mut app, width, height);
                press(&mut app, KeyCode::Esc);
            }
        }
        let narrow = screen(&mut app, 40, 12);
        assert!(narrow.contains("LOCAL") && narrow.contains("child"), "{narrow}");
    }

    #[test]
    fn where_nothing_runs_it_says_how_to_start_something() {
        let mut app = app(Looks::default());
        for width in [80, 40] {
            // In as many lines as it takes.
            let shown = screen(&mut app, width, 24).replace("\"\n\"", "");
            assert!(shown.contains("spillway run --local 512M"), "{shown}");
        }
        app.take(
            vec![Seen {
                socket: "/run/x".to_owned(),
                uid: 0,
                answer: Err(spillway_snapshot::reader::ReadError::Silent),
            }],
            None,
        );
        assert!(screen(&mut app, 80, 24).contains("does not answer"));
    }

    #[test]
    fn without_colours_there_are_none_and_with_them_neither_red_nor_green() {
        for (has_colours, allowed) in
            [(false, vec![Color::Reset]), (true, vec![Color::Reset, Color::LightBlue, Color::Yellow])]
        {
            let mut app = app(seen_twice());
            app.palette = Palette::new(has_colours);
            app.heat = app.rows.first().map(|row| (row.key, crate::top::heat::tests::map()));
            for key in [KeyCode::Esc, KeyCode::Enter, KeyCode::Char('?')] {
                press(&mut app, key);
                let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
                terminal.draw(|frame| app.draw(frame)).unwrap();
                let cells = &terminal.backend().buffer().content;
                assert!(cells.iter().all(|cell| allowed.contains(&cell.fg) && cell.bg == Color::Reset));
                assert!(cells.iter().any(|cell| cell.modifier.contains(Modifier::BOLD)));
            }
        }
    }
}
