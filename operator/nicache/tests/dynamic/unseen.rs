//! What nobody can see (the clock, chance, memory, other programs) is never older than T, and what
//! is different each time is never shared; and what requests do to the site is done at least once
//! in T.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nicache_applications::Client;

use crate::check::Cases;
use crate::common::{SOON, private_network, within};
use crate::stage::{Database, Setup, Stage, T};

/// For an execution and the machine's other work.
const SLACK: Duration = Duration::from_millis(500);

/// Asks a program at a socket, when it is dropped, until nobody is there.
struct Asked(PathBuf);

impl Drop for Asked {
    fn drop(&mut self) {
        while UnixStream::connect(&self.0).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn unix_s() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// Many clients ask for some seconds; each reply is looked at with its age in mind.
fn ask(stage: &Stage, url: &str, duration: Duration, look: impl Fn(&str, f64) + Sync) {
    let (address, look) = (stage.address(), &look);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(move || {
                let (mut client, begun) = (Client::new(address), Instant::now());
                while begun.elapsed() < duration {
                    let asked = unix_s();
                    look(&client.get(url).unwrap().text(), asked);
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
        }
    });
}

#[test]
fn clocks_and_chance() {
    // It may take some time until the page that shows PHP's memory is kept, and it must not have
    // earned more than a second by then.
    let options = &["--path=pattern = '/memory*', recheck-max = '1s'"];
    clocks_and_chance_of(&Setup { database: Database::MariaDb, options, ..Setup::default() });
}

/// Pages that show the time are never older than T, and no two visitors get the same by chance,
/// with any setup.
pub(crate) fn clocks_and_chance_of(setup: &Setup) {
    let mut stage = Stage::start(setup, |_| {});
    let mut cases = Cases::default();
    let sql = "$db = new mysqli('@HOST@', 'site', 'site', 'site', 0, @SOCKET@);";
    let clocks = [
        ("request_time", "echo $_SERVER['REQUEST_TIME'];".to_owned()),
        ("time", "echo time();".to_owned()),
        ("date", "echo (new DateTime())->format('U');".to_owned()),
        ("coarse", "echo intdiv(time(), 2) * 2 + 1;".to_owned()),
        ("now", format!("{sql} echo $db->query('SELECT UNIX_TIMESTAMP()')->fetch_row()[0];")),
        ("sysdate", format!("{sql} echo $db->query('SELECT UNIX_TIMESTAMP(SYSDATE())')->fetch_row()[0];")),
        ("exec", "echo shell_exec('date +%s');".to_owned()),
        ("proc", "$u = (float) explode(' ', file_get_contents('/proc/uptime'))[0]; echo (int) ($u + $_SERVER['REQUEST_TIME_FLOAT'] - hrtime(true) / 1e9);".to_owned()),
    ];
    for (name, text) in clocks {
        cases.run(name, || {
            stage.script(&format!("{name}.php"), &format!("<?php {text}"));
            ask(&stage, &format!("/{name}.php"), Duration::from_millis(2500), |reply, asked| {
                let said: f64 = reply.trim().parse().unwrap_or_else(|_| panic!("{name}: {reply}"));
                // A full second is what the page itself leaves out, and two for the coarse one.
                let age = asked - (said + 1.0);
                assert!(age < (T + SLACK).as_secs_f64(), "{name} is {age} s old");
            });
        });
    }
    let different = [
        // Two processes may well read the clock in the same nanosecond.
        ("microtime", "echo microtime(true), ' ', hrtime(true), ' ', getmypid();".to_owned()),
        ("rand", "echo mt_rand(), ' ', random_int(0, 1 << 60), rand();".to_owned()),
        ("uniqid", "echo uniqid('', true);".to_owned()),
        ("uuid", format!("{sql} echo $db->query('SELECT UUID()')->fetch_row()[0];")),
        ("sqlrand", format!("{sql} echo $db->query('SELECT RAND()')->fetch_row()[0];")),
        ("connection", format!("{sql} echo $db->query('SELECT CONNECTION_ID()')->fetch_row()[0];")),
        ("apcu", "echo apcu_inc('n');".to_owned()),
        ("counter", "$f = fopen('@FOLDER@/tmp/counter', 'c+'); flock($f, LOCK_EX); $n = 1 + (int) fgets($f); rewind($f); fwrite($f, $n); echo $n;".to_owned()),
        ("pid", "echo getmypid(), ' ', $_SERVER['REMOTE_PORT'], ' ', apcu_inc('m');".to_owned()),
        ("inserted", format!("{sql} $db->query('CREATE TABLE IF NOT EXISTS hits (n INT AUTO_INCREMENT PRIMARY KEY)'); $db->query('INSERT INTO hits VALUES ()'); echo $db->insert_id;")),
    ];
    for (name, text) in different {
        cases.run(name, || {
            stage.script(&format!("{name}.php"), &format!("<?php {text}"));
            let seen = std::sync::Mutex::new(HashMap::new());
            let enough = || {
                ask(&stage, &format!("/{name}.php"), Duration::from_millis(1200), |reply, asked| {
                    let by = std::thread::current().id();
                    if let Some((first, who)) =
                        seen.lock().unwrap().insert(reply.to_owned(), (asked, by)) {
                        panic!("{name}: `{reply}` twice, asked for at {first} by {who:?} and at {asked} by {by:?}");
                    }
                });
                (seen.lock().unwrap().len() > 50).then_some(())
            };
            assert!(within(SOON, enough).is_some());
        });
    }
    cases.run("memory of PHP", || {
        stage.script(
            "memory.php",
            "<?php echo memory_get_usage() > 0 ? 'some' : 'none', ' ', apcu_fetch('set');",
        );
        stage.script("set.php", "<?php apcu_store('set', $_GET['v']); echo 'done';");
        for round in 0..3 {
            stage.warm("/memory.php");
            assert_eq!(stage.get(&format!("/set.php?v={round}")), "done");
            let set = Instant::now();
            let mut client = stage.client();
            while set.elapsed() < T + SLACK + SLACK {
                let asked = set.elapsed();
                let reply = client.get("/memory.php").unwrap().text();
                assert!(
                    reply.ends_with(&format!(" {round}")) || asked < T + SLACK,
                    "`{reply}`, asked for after {asked:?}"
                );
            }
        }
    });
    cases.end(&mut stage);
}

#[test]
fn another_server() {
    // As for the page that shows PHP's memory.
    let options = &["--path=pattern = '/outer*', recheck-max = '1s'"];
    another_server_of(Setup { options, ..Setup::default() });
}

/// Pages that ask another server show its changes, with any setup.
pub(crate) fn another_server_of(setup: Setup) {
    let nginx = "location = /other { return 404; } location /backend/ { alias @FOLDER@/backend/; }";
    // A page that asks for another one takes two of them, and as many pages may be made at once as
    // there are clients.
    let mut stage = Stage::start(&Setup { nginx, workers: 8, ..setup }, |folder| {
        std::fs::create_dir(folder.join("backend")).unwrap();
        std::fs::write(folder.join("backend/answer"), "old").unwrap();
    });
    let mut cases = Cases::default();
    cases.run("a file of a backend of the same group", || {
        stage.script("curl.php", "<?php $c = curl_init('http://127.0.0.1/backend/answer'); curl_setopt($c, CURLOPT_RETURNTRANSFER, 1); echo 'It says ', curl_exec($c);");
        stage.change("/curl.php", "new", || stage.replace("backend/answer", "new"));
        stage.change("/curl.php", "newer", || stage.write("backend/answer", "newer"));
    });
    cases.run("memory of a backend of the same group", || {
        stage.script("inner.php", "<?php echo apcu_fetch('inner') ?: 'old';");
        stage.script("outer.php", "<?php $c = curl_init('http://127.0.0.1/inner.php'); curl_setopt($c, CURLOPT_RETURNTRANSFER, 1); echo 'It says ', curl_exec($c);");
        stage.script("store.php", "<?php apcu_store('inner', 'new'); echo 'done';");
        stage.warm("/outer.php");
        assert_eq!(stage.get("/store.php"), "done");
        std::thread::sleep(T + SLACK);
        stage.expect("/outer.php", "new");
    });
    cases.run("a program that nobody sees", || {
        let script = "<?php $s = @stream_socket_client('unix://@FOLDER@/run/teller'); echo $s ? fgets($s) : 'nobody';";
        stage.script("teller.php", script);
        let socket = stage.path("run/teller");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::fs::set_permissions(&socket, std::os::unix::fs::PermissionsExt::from_mode(0o777))
            .unwrap();
        // Outside of the server's group: nobody sees what it says. When it said each value last.
        let said = &std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            // Its socket ends with it, so nobody waits for it; and it ends when nobody asks it
            // any longer.
            let _end = Asked(socket);
            let teller = scope.spawn(move || {
                for (told, stream) in listener.incoming().enumerate().take(40) {
                    let value = told / 10;
                    let mut said = said.lock().unwrap();
                    said.resize(value + 1, Instant::now());
                    said[value] = Instant::now();
                    if std::io::Write::write_all(&mut stream.unwrap(),
                        format!("{value}\n").as_bytes()).is_err() {
                        return;
                    }
                }
            });
            let (mut client, begun) = (stage.client(), Instant::now());
            while !teller.is_finished() {
                let asked = Instant::now();
                // Nothing when the teller has just ended.
                let Ok(value) = client.get("/teller.php").unwrap().text().trim()
                    .parse::<usize>() else { break };
                let age = asked.saturating_duration_since(said.lock().unwrap()[value]);
                assert!(age < T + SLACK, "`{value}` was said {age:?} ago");
                assert!(begun.elapsed() < Duration::from_secs(60));
            }
        });
    });
    cases.end(&mut stage);
}

/// A program with data of its own, ended when it is dropped.
struct Program(Child);

impl Program {
    fn start(words: &[&str]) -> Self {
        Self(Command::new(words[0]).args(&words[1..]).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Has the kernel pass on what comes at a port to a store of data, and back.
const RELAY: &str = "
import os, select, socket
into, out = os.pipe()[::-1]
def pass_on(near, far):
    other = {near: far, far: near}
    while True:
        for side in select.select([near, far], [], [])[0]:
            count = os.splice(side.fileno(), into, 65536)
            if count == 0:
                return
            while count > 0:
                count -= os.splice(out, other[side].fileno(), count)
listener = socket.create_server(('127.0.0.1', 7781))
while True:
    near, _ = listener.accept()
    # The one outside the group: what the other one answers is seen.
    with near, socket.socket() as far:
        far.connect(('127.0.0.1', 7778))
        pass_on(near, far)
";

/// What they say is theirs, whatever they are called and wherever they listen: no page with it is
/// kept.
#[test]
fn programs_that_keep_data() {
    const OPTIONS: &[&str] = &[
        "--with",
        "redis-server --port 7777 --unixsocket @FOLDER@/run/redis --unixsocketperm 777 --save '' --dir @FOLDER@/tmp",
        "--with",
        "sh -c 'ln -s /usr/bin/memcached @FOLDER@/run/cache && exec @FOLDER@/run/cache -u root -l 127.0.0.1 -p 7779'",
        "--with",
        "nginx -p @FOLDER@ -e stderr -c @FOLDER@/own.conf",
        "--with",
        "python3 @FOLDER@/relay.py",
        "--share",
        "7778",
    ];
    private_network();
    let outside =
        Program::start(&["redis-server", "--port", "7778", "--save", "", "--dir", "/var/tmp"]);
    let setup = Setup { options: OPTIONS, ..Setup::default() };
    let mut stage = Stage::start_here(&setup, None, |folder| {
        let root = folder.display();
        let text = format!(
            "daemon off; pid {root}/run/own.pid; events {{}}
             http {{ access_log off; client_body_temp_path {root}/tmp/own; server {{ listen 127.0.0.1:7780; root {root}/data; }} }}"
        );
        std::fs::write(folder.join("own.conf"), text).unwrap();
        std::fs::write(folder.join("relay.py"), RELAY).unwrap();
    });
    let mut cases = Cases::default();
    let ask = "$s = stream_socket_client($where); fwrite($s, $what); $r = fgets($s); if ($r[0] == '$' || str_starts_with($r, 'VALUE')) $r = fgets($s); return trim($r);";
    stage.write("include/ask.php", &format!("<?php function ask($where, $what) {{ {ask} }}"));
    // As PHP writes them.
    let redis = (r#""GET v\r\n""#, r#""SET v {$_GET['v']}\r\n""#);
    let memcached =
        (r#""get v\r\n""#, r#""set v 0 0 " . strlen($_GET['v']) . "\r\n{$_GET['v']}\r\n""#);
    let programs = [
        ("redis", "tcp://127.0.0.1:7777", redis),
        ("socket", "unix://@FOLDER@/run/redis", redis),
        ("shared", "tcp://127.0.0.1:7778", redis),
        ("renamed", "tcp://127.0.0.1:7779", memcached),
        ("relayed", "tcp://127.0.0.1:7781", redis),
    ];
    for (name, place, (get, set)) in programs {
        cases.run(name, || {
            let script = |what: &str| {
                format!("<?php require '@FOLDER@/include/ask.php'; echo ask('{place}', {what});")
            };
            stage.script(&format!("{name}.php"), &script(get));
            stage.script(&format!("{name}-set.php"), &script(set));
            let (mut client, before) = (stage.client(), stage.counter("hits"));
            for round in 0..30 {
                stage.direct(&format!("/{name}-set.php?v={round}"));
                for _ in 0..5 {
                    let reply = client.get(&format!("/{name}.php")).unwrap().text();
                    assert_eq!(reply, round.to_string(), "{name}");
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            assert_eq!(stage.counter("hits"), before, "{name}");
        });
    }
    cases.run("a part of the application", || {
        stage.write("data/told", "old");
        stage.script("own.php", "<?php echo file_get_contents('http://127.0.0.1:7780/told');");
        stage.change("/own.php", "new", || stage.replace("data/told", "new"));
    });
    cases.end(&mut stage);
    drop(outside);
}

#[test]
fn what_requests_do_is_done() {
    what_requests_do_is_done_of(&Setup { database: Database::MariaDb, ..Setup::default() });
}

/// Programs that change something at each request go on doing so, though their pages show nothing
/// of it, with any setup.
pub(crate) fn what_requests_do_is_done_of(setup: &Setup) {
    let mut stage = Stage::start(setup, |_| {});
    let mut cases = Cases::default();
    stage
        .sql("CREATE TABLE counted (n INT PRIMARY KEY, visits INT); INSERT INTO counted VALUES (1, 0), (2, 0), (3, 0)");
    let sql = "$db = new mysqli('@HOST@', 'site', 'site', 'site', 0, @SOCKET@);";
    let counted = |n: u32| {
        stage
            .sql(&format!("SELECT visits FROM counted WHERE n = {n}"))
            .trim()
            .parse::<u64>()
            .unwrap()
    };
    let scripts = [
        (
            "counts",
            1,
            format!(
                "{sql} $db->query('UPDATE counted SET visits = visits + 1 WHERE n = 1'); echo 'counted';"
            ),
        ),
        (
            "late",
            2,
            format!(
                "echo 'counted'; fastcgi_finish_request(); usleep(50000); {sql} $db->query('UPDATE counted SET visits = visits + 1 WHERE n = 2');"
            ),
        ),
        (
            "seldom",
            3,
            format!(
                "if (apcu_add('turn', 1, 1)) {{ {sql} $db->query('UPDATE counted SET visits = visits + 1 WHERE n = 3'); }} echo 'counted';"
            ),
        ),
    ];
    for (name, n, text) in &scripts {
        cases.run(name, || {
            stage.script(&format!("{name}.php"), &format!("<?php {text}"));
            let url = format!("/{name}.php");
            ask(&stage, &url, Duration::from_secs(1), |reply, _| assert_eq!(reply, "counted"));
            // At its own pace, which is once in a second at most for the last. A busy machine may
            // do less for some seconds.
            let enough = if *n == 3 { 1 } else { 3 };
            let is_done = || {
                let (before, begun) = (counted(*n), Instant::now());
                ask(&stage, &url, Duration::from_secs(4), |reply, _| assert_eq!(reply, "counted"));
                let done = counted(*n) - before;
                println!("  {name}: {done} in {:?}", begun.elapsed());
                done >= enough
            };
            assert!((0..10).any(|_| is_done()), "{name}: never {enough} times in 4 s");
        });
    }
    cases.end(&mut stage);
}
