//! Files that are written.

use crate::run::{nicache, trace};

#[test]
fn a_report_figures_and_data_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).into_os_string();
    let words =
        ["sim", "curve", "--policies", "all", "--sizes", "1M..8M/1"].map(std::ffi::OsString::from);
    let files =
        [("--report", "r.html"), ("--svg", "f.svg"), ("--png", "f.png"), ("--csv", "f.csv")];
    let files = files.into_iter().flat_map(|(flag, name)| [flag.into(), file(name)]);
    let output =
        nicache(words.into_iter().chain(files).chain([trace("epa-http.txt.zst").into_os_string()]));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("S3-FIFO") && text.contains("8 MB"), "{text}");
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    let page = String::from_utf8(read("r.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") || page.starts_with("<!doctype html>"));
    assert!(page.contains("default-src 'none'") && page.contains("W-TinyLFU"));
    assert!(page.contains("Bound (PFOO-L)") && page.contains("Belady (no bound here)"));
    assert!(
        text.contains("Hit rate")
            && text.contains("Byte hit rate")
            && text.contains("Memory of this study"),
        "{text}"
    );
    for figure in ["requests", "bytes"] {
        assert!(read(&format!("f-{figure}.svg")).starts_with(b"<svg"));
        assert!(read(&format!("f-{figure}.png")).starts_with(b"\x89PNG"));
        let csv = String::from_utf8(read(&format!("f-{figure}.csv"))).unwrap();
        assert!(csv.lines().count() > 4, "{csv}");
    }
}
