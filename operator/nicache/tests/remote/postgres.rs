//! PostgreSQL on another machine.

use std::time::Duration;

use crate::check::Cases;
use crate::far::{FAR, Kind};
use crate::load::under_load;
use crate::pair::Pair;

#[test]
fn a_postgres_on_another_machine() {
    let pair = Pair::start(Kind::Postgres);
    pair.far.sql("CREATE TABLE versions (id INT PRIMARY KEY, version INT); INSERT INTO versions VALUES (1, 0)");
    let script = "<?php $db = @pg_connect('host=@FAR@ user=postgres dbname=site sslmode=disable connect_timeout=30');
        if (!$db) { http_response_code(503); exit; }
        $rows = @pg_query($db, 'SELECT version FROM versions WHERE id = 1'); if (!$rows) { http_response_code(503); exit; }
        echo 'version ', pg_fetch_row($rows)[0];";
    pair.stage.script("table.php", &script.replace("@FAR@", FAR));
    let far = &pair.far;
    let update =
        |version: usize| far.try_sql(&format!("UPDATE versions SET version = {version}")).is_ok();
    let mut cases = Cases::default();
    cases.run("an update shows in the next reply", || {
        for version in [5, 6] {
            pair.stage
                .change("/table.php", &format!("version {version}"), || assert!(update(version)));
        }
    });
    cases.run("readers and a writer, and a way that is cut", || {
        assert!(update(0));
        pair.stage.warm("/table.php");
        let mut state = 0;
        let before = pair.stage.counter("hits_dynamic");
        let seen =
            under_load(pair.stage.address(), "/table.php", Duration::from_secs(12), update, |at| {
                if state == 0 && at > Duration::from_secs(3) {
                    pair.far.cut_events(true);
                    state = 1;
                } else if state == 1 && at > Duration::from_secs(8) {
                    pair.far.cut_events(false);
                    state = 2;
                }
            });
        println!("  {seen:?}, {} hits", pair.stage.counter("hits_dynamic") - before);
        assert!(state == 2 && seen.replies > 200 && seen.changes > 20, "{seen:?}");
        pair.stage.warm("/table.php");
    });
    let mut stage = pair.stage;
    drop(pair.far);
    cases.end(&mut stage);
}
