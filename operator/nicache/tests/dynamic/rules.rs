//! The oracle of `nicache prove` over everything that a page can depend on: it finds nothing wrong,
//! and it finds each rule that is turned off.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use nicache_applications::Client;
use nicache_coherence::Rule;
use nicache_prove::{
    Direct, EditError, Editor, Outcome, Page, Plan, Readers, Report, Subject, prove,
};
use rustix::fs::{CWD, RenameFlags};
use rustix::process::Signal;

use crate::check::eventually;
use crate::common::{family, is_running, kill, within};
use crate::living;
use crate::stage::{Database, Setup, Shell, Stage, T};

/// nginx answers here without the card.
const DIRECT_PORT: u16 = 8081;
const DIRECT: &str = "listen 8081;";
/// For an execution and the machine's other work.
const SLACK: Duration = Duration::from_millis(500);
/// PHP looks at its scripts again after this many seconds, where a stage says so.
const REVALIDATE: u32 = 2;
/// Digits of a number that is written through a mapping; the last eight of them at once.
const DIGITS: usize = 24;

/// An edit as a closure.
pub(crate) struct Way {
    name: &'static str,
    kind: &'static str,
    edit: Box<dyn FnMut(u64) -> Result<(), EditError> + Send>,
}

impl Editor for Way {
    fn name(&self) -> &str {
        self.name
    }

    fn kind(&self) -> &str {
        self.kind
    }

    fn edit(&mut self, version: u64) -> Result<(), EditError> {
        (self.edit)(version)
    }
}

pub(crate) fn way(
    name: &'static str,
    kind: &'static str,
    edit: impl FnMut(u64) -> Result<(), EditError> + Send + 'static,
) -> Way {
    Way { name, kind, edit: Box::new(edit) }
}

/// The pages of a stage, one for each subject, and what edits them.
struct Scene {
    pages: Vec<(&'static str, String)>,
    ways: Vec<Way>,
}

impl Scene {
    fn new(stage: &Stage, with_database: bool) -> Self {
        let mut scene = Self { pages: Vec::new(), ways: Vec::new() };
        let data = stage.path("data");
        scene.add_files(stage, &data);
        if with_database {
            scene.add_rows(stage);
        }
        scene
    }

    fn page(&mut self, stage: &Stage, name: &'static str, text: &str) {
        let page = format!("{name}.php");
        stage.script(&page, &format!("<?php {text}"));
        self.pages.push((name, format!("/{page}")));
    }

    fn add_files(&mut self, stage: &Stage, data: &Path) {
        stage.write("data/file", "00000001");
        self.page(
            stage,
            "file",
            "echo 'file=', (int) file_get_contents('@FOLDER@/data/file'), '.';",
        );
        let file = data.join("file");
        self.ways.push(way("file", "write in place", move |version| {
            let file = std::fs::File::options().write(true).open(&file)?;
            Ok(file.write_all_at(format!("{version:08}").as_bytes(), 0)?)
        }));
        let file = data.join("file");
        self.ways.push(way("file", "rename over", move |version| {
            std::fs::write(file.with_extension("new"), format!("{version:08}"))?;
            Ok(std::fs::rename(file.with_extension("new"), &file)?)
        }));

        std::fs::create_dir(data.join("v1")).unwrap();
        stage.write("data/v1/version", "1");
        symlink("v1", data.join("current")).unwrap();
        self.page(
            stage,
            "link",
            "echo 'link=', file_get_contents('@FOLDER@/data/current/version'), '.';",
        );
        let folder = data.to_owned();
        self.ways.push(way("link", "new target of a link", move |version| {
            let name = format!("v{version}");
            std::fs::create_dir(folder.join(&name))?;
            std::fs::write(folder.join(&name).join("version"), version.to_string())?;
            symlink(&name, folder.join("link.new"))?;
            Ok(std::fs::rename(folder.join("link.new"), folder.join("current"))?)
        }));

        for folder in ["live", "next"] {
            std::fs::create_dir(data.join(folder)).unwrap();
            stage.write(&format!("data/{folder}/version"), "1");
        }
        self.page(
            stage,
            "swap",
            "echo 'swap=', file_get_contents('@FOLDER@/data/live/version'), '.';",
        );
        let (live, next) = (data.join("live"), data.join("next"));
        self.ways.push(way("swap", "another directory in its place", move |version| {
            std::fs::write(next.join("version"), version.to_string())?;
            Ok(rustix::fs::renameat_with(CWD, &live, CWD, &next, RenameFlags::EXCHANGE)?)
        }));

        std::fs::create_dir(data.join("probe")).unwrap();
        stage.write("data/probe/1", "");
        let probe = "for ($n = 1; is_file('@FOLDER@/data/probe/' . ($n + 1)); $n++) {} echo 'probe=', $n, '.';";
        self.page(stage, "probe", probe);
        let folder = data.join("probe");
        self.ways.push(way("probe", "a path that was not there", move |version| {
            Ok(std::fs::write(folder.join(version.to_string()), "")?)
        }));

        stage.write("data/sized", "1");
        self.page(
            stage,
            "sized",
            "clearstatcache(); echo 'sized=', filesize('@FOLDER@/data/sized'), '.';",
        );
        let file = std::fs::File::options().write(true).open(data.join("sized")).unwrap();
        self.ways.push(way("sized", "truncate", move |version| Ok(file.set_len(version)?)));

        stage.write("data/mapped", &format!("{:0DIGITS$}", 1));
        self.page(
            stage,
            "mapped",
            "echo 'mapped=', (int) file_get_contents('@FOLDER@/data/mapped'), '.';",
        );
        let mut mapping = Mapping::new(&data.join("mapped"));
        self.ways.push(way("mapped", "store through a mapping", move |version| {
            mapping.store(version);
            Ok(())
        }));
    }

    fn add_rows(&mut self, stage: &Stage) {
        stage.sql("CREATE TABLE v (id INT PRIMARY KEY, n BIGINT); INSERT INTO v VALUES (1, 1), (2, 1), (3, 1), (4, 1)");
        let sql = "$db = new mysqli(null, 'site', 'site', 'site', 0, '@FOLDER@/run/mariadb.sock');";
        let row = |name: &str, id: u32, then: &str| {
            format!(
                "{sql} $n = $db->query('SELECT n FROM v WHERE id = {id}')->fetch_row()[0]; {then} echo '{name}=', $n, '.';"
            )
        };
        self.page(stage, "row", &row("row", 1, ""));
        self.page(stage, "slow", &row("slow", 2, "usleep(30000);"));
        self.page(stage, "long", &row("long", 3, ""));
        let shell = |stage: &Stage| stage.mariadb_shell();
        let mut client = shell(stage);
        self.ways.push(way("row", "UPDATE", move |version| {
            run(&mut client, &format!("UPDATE v SET n = {version} WHERE id = 1;"))
        }));
        let mut client = shell(stage);
        self.ways.push(way("row", "UPDATE, then COMMIT", move |version| {
            run(&mut client, &format!("BEGIN; UPDATE v SET n = {version} WHERE id = 1;"))?;
            std::thread::sleep(Duration::from_millis(20));
            run(&mut client, "COMMIT;")
        }));
        let mut client = shell(stage);
        self.ways.push(way("row", "REPLACE", move |version| {
            run(&mut client, &format!("REPLACE INTO v VALUES (1, {version});"))
        }));
        let mut client = shell(stage);
        self.ways.push(way("slow", "UPDATE", move |version| {
            run(&mut client, &format!("UPDATE v SET n = {version} WHERE id = 2;"))
        }));
        let data = stage.path("data");
        std::fs::create_dir(data.join("sent")).unwrap();
        stage.write("data/sent/1", "sent=1.");
        self.page(stage, "sent", &row("sent", 4, "header('X-Accel-Redirect: /sent/' . $n);"));
        let mut client = shell(stage);
        self.ways.push(way("sent", "UPDATE of what decides which file is sent", move |version| {
            std::fs::write(data.join(format!("sent/{version}")), format!("sent={version}."))?;
            run(&mut client, &format!("UPDATE v SET n = {version} WHERE id = 4;"))
        }));
        let mut client = Silent::start(stage);
        self.ways.push(way("long", "UPDATE that takes a while, and silence", move |version| {
            client.run(&format!("UPDATE v SET n = {version} + 0 * SLEEP(0.05) WHERE id = 3;"))
        }));
    }

    /// A plan for the subjects of these names; all if there are none.
    fn plan(self, stage: &Stage, names: &[&str]) -> Plan {
        let is_meant = |name: &str| names.is_empty() || names.contains(&name);
        let pages = self
            .pages
            .iter()
            .filter(|(name, _)| is_meant(name))
            .map(|(_, target)| Page::new(target));
        let ways = self.ways.into_iter().filter(|way| is_meant(way.name));
        let subjects = Subject::group(ways.map(|way| Box::new(way) as Box<dyn Editor>));
        let mut plan = Plan::new(stage.address(), pages.collect(), subjects);
        plan.readers = Readers { connections: 12, direct_connections: 2, ..Readers::default() };
        plan.edits_per_second = 2.0;
        plan.burst = 2;
        plan.duration = Some(Duration::from_secs(6));
        plan.quiet = Duration::from_millis(100);
        plan
    }
}

fn run(client: &mut Shell, text: &str) -> Result<(), EditError> {
    client.run(text);
    Ok(())
}

/// A client of the database that says nothing after a statement, not even good-bye.
struct Silent {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Silent {
    fn start(stage: &Stage) -> Self {
        let mut command = stage.mariadb();
        let mut process = command
            .args(["-v", "-v", "-v"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) =
            (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        Self { process, input, output }
    }

    fn run(&mut self, text: &str) -> Result<(), EditError> {
        writeln!(self.input, "{text}")?;
        let mut line = String::new();
        while !line.starts_with("Query OK") {
            line.clear();
            if self.output.read_line(&mut line)? == 0 {
                return Err("the client of the database has ended".into());
            }
        }
        Ok(())
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A number in a file that is written by stores to memory.
struct Mapping(*mut u8);

// SAFETY: the mapping is this value's own, and is used by one thread at a time.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(path: &Path) -> Self {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        Self(
            unsafe { mmap(std::ptr::null_mut(), DIGITS, access, MapFlags::SHARED, file, 0) }
                .unwrap()
                .cast(),
        )
    }

    /// By one store, so nobody reads a part of it.
    fn store(&mut self, number: u64) {
        let digits = format!("{number:08}");
        let last: [u8; 8] = digits.as_bytes().try_into().unwrap();
        // SAFETY: the last eight of DIGITS mapped bytes, aligned since the mapping begins at a
        // page.
        unsafe {
            self.0.add(DIGITS - last.len()).cast::<u64>().write_volatile(u64::from_ne_bytes(last));
        };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and nothing refers to it any longer.
        let _ = unsafe { rustix::mm::munmap(self.0.cast(), DIGITS) };
    }
}

/// Runs a plan and shows what happened.
pub(crate) fn carry_out(plan: Plan) -> Report {
    let report = prove(plan, |_| {}).unwrap();
    println!("{report}");
    report
}

/// Edits of files and rows on a stage with MariaDB.
pub(crate) fn files_and_rows(stage: &Stage) -> Plan {
    Scene::new(stage, true).plan(stage, &["file", "row"])
}

fn everything(without: Option<Rule>, database: Database) -> Stage {
    // PHP would remember where a link led.
    let php = &["realpath_cache_size=0"];
    let nginx = "location /sent/ { internal; alias @FOLDER@/data/sent/; }";
    let setup = Setup { database, workers: 4, php, nginx, without, ..Setup::default() };
    Stage::start(&setup, |_| {})
}

/// With the rule turned off, the oracle finds a wrong reply about these subjects.
fn is_found(rule: Rule, names: &[&str], adjust: impl Fn(&Stage, &mut Plan)) {
    let needs_database = names.iter().any(|name| ["row", "slow", "long", "sent"].contains(name));
    let database = if needs_database { Database::MariaDb } else { Database::None };
    let mut stage = everything(Some(rule), database);
    let mut plan = Scene::new(&stage, needs_database).plan(&stage, names);
    adjust(&stage, &mut plan);
    // What other tests mount and start voids pages, too.
    plan.duration = Some(Duration::from_secs(90));
    find(rule, &mut stage, plan);
}

/// Carries a plan out until something is wrong.
fn find(rule: Rule, stage: &mut Stage, plan: Plan) {
    let stop = plan.stop.clone();
    let report = prove(plan, |progress| {
        if progress.violations > 0 {
            stop.store(true, Ordering::Relaxed);
        }
    });
    let report = report.unwrap();
    println!("without `{}`: {report}", rule.label());
    if let Some(path) = std::env::var_os("NICACHE_TEST_LOG") {
        std::fs::write(path, stage.nicache.log_text()).unwrap();
    }
    assert!(report.violations > 0, "nobody notices that the rule `{}` is off", rule.label());
}

#[test]
fn all_kinds_of_sources_together() {
    // A busy machine may need longer for as many hits.
    let hits = proven_together(12);
    assert!(hits > 200 || proven_together(60) > 200, "{hits} hits in 12 s");
}

/// Edits of all kinds for so many seconds, each reply proven. The hits.
fn proven_together(seconds: u64) -> u64 {
    let stage = everything(None, Database::MariaDb);
    stage.script("clock.php", "<?php echo 'time=', time(), '.';");
    let mut plan = Scene::new(&stage, true).plan(&stage, &[]);
    let mut clock = Page::new("/clock.php");
    // A whole second is what the page itself leaves out.
    clock.within = Some(T + SLACK + Duration::from_secs(1));
    plan.pages.push(clock);
    plan.duration = Some(Duration::from_secs(seconds));
    let report = carry_out(plan);
    assert_eq!(report.outcome(), Outcome::Proven, "{report}");
    for subject in &report.subjects {
        assert!(
            subject.kinds.values().all(|kind| kind.edits > 0 && kind.failed == 0),
            "{subject:?}"
        );
    }
    stage.counter("hits_dynamic")
}

#[test]
fn without_missing_paths() {
    is_found(Rule::MissingPaths, &["probe"], |_, _| {});
}

#[test]
fn without_attributes() {
    is_found(Rule::Attributes, &["sized"], |_, _| {});
}

#[test]
fn without_paths() {
    is_found(Rule::Paths, &["swap"], |_, _| {});
}

#[test]
fn without_files_open_for_writing() {
    is_found(Rule::OpenForWriting, &["mapped"], |_, _| {});
}

#[test]
fn without_the_time_before_the_request() {
    is_found(Rule::Forwarded, &["slow"], |_, plan| plan.edits_per_second = 8.0);
}

#[test]
fn without_databases() {
    is_found(Rule::Databases, &["row"], |_, _| {});
}

#[test]
fn without_decisions() {
    is_found(Rule::Decisions, &["sent"], |_, _| {});
}

#[test]
fn without_doubt() {
    is_found(Rule::Doubt, &["long"], |_, _| {});
}

#[test]
fn without_age() {
    is_found(Rule::Age, &["file"], |stage, plan| {
        stage.script("clock.php", "<?php echo 'time=', time(), '.';");
        let mut clock = Page::new("/clock.php");
        clock.within = Some(T + SLACK + Duration::from_secs(1));
        plan.pages = vec![clock, Page::new("/file.php")];
        plan.edits_per_second = 0.1;
        plan.burst = 1;
    });
}

/// A clock that stands still for four seconds at a time, so executions agree.
#[test]
fn without_earning() {
    is_found(Rule::Earned, &["file"], |stage, plan| {
        stage.script("clock.php", "<?php echo 'time=', time() - time() % 4, '.';");
        let mut clock = Page::new("/clock.php");
        clock.within = Some(T + SLACK + Duration::from_secs(4));
        plan.pages = vec![clock, Page::new("/file.php")];
        plan.edits_per_second = 0.1;
        plan.burst = 1;
    });
}

/// Two clients, and a page that is for one of them each: no oracle for versions, but a look at who
/// got what.
#[test]
fn without_the_time_since_a_request_waits() {
    is_found(Rule::Shared, &["slow"], |_, plan| plan.edits_per_second = 8.0);
}

#[test]
fn without_agreement() {
    let start = |without| {
        let stage = everything(without, Database::MariaDb);
        stage.script("mine.php", "<?php echo $_SERVER['REMOTE_PORT'];");
        stage
    };
    let see = |stage: &Stage| {
        let mut others = 0;
        for _ in 0..60 {
            let mut client = Client::new(stage.address());
            let first = client.get("/mine.php").unwrap().text();
            let second = Client::new(stage.address()).get("/mine.php").unwrap().text();
            others += u32::from(first == second);
        }
        others
    };
    assert_eq!(see(&start(None)), 0);
    let stage = start(Some(Rule::Agreement));
    assert!(eventually(|| see(&stage) > 0), "nobody notices that the rule is off");
}

/// PHP keeps compiled scripts for [`REVALIDATE`] seconds, all workers alike.
fn late_php(without: Option<Rule>) -> (Stage, Plan) {
    let setup =
        Setup { revalidate: REVALIDATE, nginx: DIRECT, workers: 3, without, ..Setup::default() };
    let stage = Stage::start(&setup, |_| {});
    stage.write("include/version.php", "<?php echo 'included=1.';");
    stage.script("include.php", "<?php include '@FOLDER@/include/version.php';");
    let file = stage.path("include/version.php");
    let edit = move |version| {
        std::fs::write(file.with_extension("new"), format!("<?php echo 'included={version}.';"))?;
        Ok(std::fs::rename(file.with_extension("new"), &file)?)
    };
    let mut subject = Subject::new(Box::new(way("included", "rename over", edit)));
    subject.lag = Duration::from_secs(u64::from(REVALIDATE)) + SLACK + T;
    subject.one_state = true;
    let mut plan = Plan::new(stage.address(), vec![Page::new("/include.php")], vec![subject]);
    let mut direct = stage.address();
    direct.set_port(DIRECT_PORT);
    plan.direct = Some(Direct { address: direct, namespace: None });
    plan.readers = Readers { connections: 12, direct_connections: 2, ..Readers::default() };
    plan.edits_per_second = 0.3;
    plan.burst = 1;
    plan.duration = Some(Duration::from_secs(12));
    (stage, plan)
}

#[test]
fn a_server_that_is_late_itself() {
    let (stage, plan) = late_php(None);
    let report = carry_out(plan);
    assert_eq!(report.outcome(), Outcome::Proven, "{report}");
    assert!(stage.counter("hits_dynamic") > 100);
}

fn is_found_late(rule: Rule) {
    let (mut stage, mut plan) = late_php(Some(rule));
    plan.duration = Some(Duration::from_secs(90));
    find(rule, &mut stage, plan);
}

#[test]
fn without_what_the_server_retains() {
    is_found_late(Rule::Retained);
}

#[test]
fn without_dirty_files() {
    is_found_late(Rule::Dirty);
}

/// A deployment: a link leads to the new release, and PHP-FPM, which remembers where it led, is
/// told to start anew.
fn deployment(without: Option<Rule>) -> (Stage, Plan) {
    let php = &["realpath_cache_ttl=600", "opcache.revalidate_path=0"];
    // Without the rule, the wrong reply must outlive the reload, however long a busy machine takes
    // for it.
    let (options, pause) = match without {
        Some(_) => (living::LONG, Duration::from_secs(1)),
        None => (&[] as &[&str], Duration::from_millis(300)),
    };
    let setup = Setup { nginx: DIRECT, workers: 2, without, php, options, ..Setup::default() };
    // Without it PHP-FPM itself says nothing, with status 200, to some requests that its processes
    // are at when it begins anew.
    let stage = Stage::start(&setup, |folder| {
        let path = folder.join("php.conf");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, text.replace("[global]", "[global]\nprocess_control_timeout = 5s"))
            .unwrap();
    });
    let releases = stage.path("data");
    std::fs::create_dir(releases.join("r1")).unwrap();
    stage.write("data/r1/version.php", "<?php echo 'release=1.';");
    symlink("r1", releases.join("live")).unwrap();
    stage.script("release.php", "<?php include '@FOLDER@/data/live/version.php';");
    let mut direct = stage.address();
    direct.set_port(DIRECT_PORT);
    let (pid, master) = (stage.path("run/php-fpm.pid"), stage.nicache.processes());
    let edit = move |version: u64| -> Result<(), EditError> {
        let name = format!("r{version}");
        std::fs::create_dir(releases.join(&name))?;
        std::fs::write(
            releases.join(&name).join("version.php"),
            format!("<?php echo 'release={version}.';"),
        )?;
        symlink(&name, releases.join("live.new"))?;
        std::fs::rename(releases.join("live.new"), releases.join("live"))?;
        // Time enough for pages that are made as before.
        std::thread::sleep(pause);
        let inner = std::fs::read_to_string(&pid)?.trim().to_owned();
        let leader = outer_pid(&master, &inner).ok_or("PHP-FPM is gone")?;
        let old: Vec<u64> = family(leader).into_iter().filter(|pid| *pid != leader).collect();
        kill(leader, Signal::USR2);
        // One that had no request before this change shows it already, while the others do not.
        let all_gone = || (!old.iter().any(|pid| is_running(*pid))).then_some(());
        within(Duration::from_secs(20), all_gone).ok_or("the old processes are there")?;
        let shows_it = || {
            let reply = Client::new(direct).get("/release.php").ok()?;
            reply.text().contains(&format!("release={version}.")).then_some(())
        };
        within(Duration::from_secs(20), shows_it).ok_or("the new release does not show")?;
        Ok(())
    };
    let subject = Subject::new(Box::new(way("release", "deployment", edit)));
    let mut plan = Plan::new(stage.address(), vec![Page::new("/release.php")], vec![subject]);
    plan.statuses = vec![502, 503, 504];
    plan.readers = Readers { connections: 12, ..Readers::default() };
    plan.edits_per_second = 0.5;
    plan.burst = 1;
    plan.duration = Some(Duration::from_secs(12));
    (stage, plan)
}

/// The process of ours that a PID file names.
pub(crate) fn outer_pid(processes: &std::collections::BTreeSet<u64>, number: &str) -> Option<u64> {
    number.parse().ok().filter(|pid| processes.contains(pid))
}

#[test]
fn a_deployment_by_a_link_and_a_reload() {
    let (stage, plan) = deployment(None);
    let report = carry_out(plan);
    assert_eq!(report.outcome(), Outcome::Proven, "{report}");
    assert!(stage.counter("hits_dynamic") > 100);
}

#[test]
fn without_starts_and_ends_of_processes() {
    let (mut stage, mut plan) = deployment(Some(Rule::Processes));
    plan.duration = Some(Duration::from_secs(90));
    find(Rule::Processes, &mut stage, plan);
}
