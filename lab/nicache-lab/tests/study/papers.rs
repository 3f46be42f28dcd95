//! The papers' studies.

use crate::run::{json, nicache, trace};

#[test]
fn koch_table1_has_the_papers_rows() {
    let table = json("sim reproduce koch-table1 --json --seeds 3", &[]);
    let rows = table["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 23);
    for row in rows.iter().filter(|row| !row["throughput"].is_null()) {
        let (paper, ours) = (
            row["throughput"]["paper"].as_f64().unwrap(),
            row["throughput"]["ours"].as_f64().unwrap(),
        );
        assert!(paper.signum() == ours.signum() || paper.abs() < 0.5, "{row}");
    }
}

#[test]
fn kim_fig3_grows_with_the_cache_and_two_caches_get_less_than_one() {
    let study = json("sim reproduce kim-fig3 --json", &[&trace("nasa-aug95-first20000.txt.zst")]);
    let points = |name: &str| -> Vec<f64> {
        let points = study["traces"][0][name]["points"].as_array().unwrap();
        points
            .iter()
            .map(|point| point["hit_bytes"].as_f64().unwrap() / point["bytes"].as_f64().unwrap())
            .collect()
    };
    let (one, two) = (points("one_cache"), points("two_caches"));
    assert!(one.is_sorted() && two.is_sorted());
    assert!(one.last() > two.last(), "{one:?} {two:?}");
}

#[test]
fn bos_fig4_levels_off() {
    let study = json("sim reproduce bos-fig4 --json", &[&trace("epa-http.txt.zst")]);
    let points = study["traces"][0]["curves"][0]["points"].as_array().unwrap();
    let hits: Vec<u64> = points.iter().map(|point| point["hits"].as_u64().unwrap()).collect();
    assert_eq!(hits[hits.len() - 1], hits[hits.len() - 2], "{hits:?}");
    assert!(hits[0] > 0 && hits[0] < hits[hits.len() - 1]);
}

#[test]
fn a_server_is_simulated_from_names_files_and_traces() {
    let names = String::from_utf8(nicache(["sim", "server", "--list"]).stdout).unwrap();
    assert_eq!(names.lines().count(), 24, "{names}");
    let folder = tempfile::tempdir().unwrap();
    let (file, dump) = (folder.path().join("mine.toml"), folder.path().join("dump.jsonl"));
    std::fs::write(
        &file,
        "extends = \"Short8MB\"\n[requests]\ncount = 2000\n[debug]\nbus_ticks = 1000000\n",
    )
    .unwrap();
    let words = format!("sim server --json --seeds 3 --dump {} {}", dump.display(), file.display());
    let ran = json(&words, &[]);
    let summary = &ran["runs"][0]["summary"];
    assert!(summary["hit_ratio"]["mean"].as_f64().unwrap() > 0.1, "{summary}");
    assert!(std::fs::read_to_string(dump).unwrap().lines().count() > 1);
    let words = format!(
        "sim server --json --seeds 2 --trace {} Short8MB",
        trace("epa-http.txt.zst").display()
    );
    assert!(json(&words, &[])["runs"][0]["summary"]["hit_ratio"]["mean"].as_f64().unwrap() > 0.3);
    let shown =
        String::from_utf8(nicache(["sim", "server", "--show", "ShortBest"]).stdout).unwrap();
    assert!(shown.contains("memory_bytes = 33554432"), "{shown}");
}
