//! What goes wrong is said, with what to do.

use std::path::PathBuf;

use crate::run::{nicache, trace};

fn fails_with(words: &str, file: Option<PathBuf>) -> String {
    let output = nicache(words.split_whitespace().map(PathBuf::from).chain(file));
    assert!(!output.status.success(), "{words}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn errors_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        Some(path)
    };
    assert!(fails_with("sim curve /no/such/log", None).contains("/no/such/log"));
    assert!(fails_with("sim curve", write("empty", b"")).contains("it is empty"));
    let prose = write("prose", b"It was a dark and stormy night, and nobody made a request.\nNobody at all.\n");
    assert!(fails_with("trace info --format common", prose).contains("--format"));
    assert!(
        fails_with("trace advise", write("posts", b"1\ta\tPOST\t/\t200\t1\n"))
            .contains("could be answered from a cache")
    );
    let mut cut = std::fs::read(trace("epa-http.txt.zst")).unwrap();
    cut.truncate(100_000);
    assert!(fails_with("trace info", write("cut.zst", &cut)).contains("cut.zst"));
    let epa = || Some(trace("epa-http.txt.zst"));
    assert!(fails_with("sim curve --policies lfru", epa()).contains("s3-fifo"));
    assert!(fails_with("sim curve --sizes 0", epa()).contains("no size"));
    assert!(fails_with("sim curve --sample 1000 --policies fifo", epa()).contains("leave --sample out"));
    assert!(fails_with("sim curve --report /no/such/folder/r.html", epa()).contains("/no/such/folder/r.html"));
    assert!(fails_with("sim server Short9MB", None).contains("Short8MB"));
    assert!(fails_with("sim reproduce kim-fig3", None).contains("TRACE"));
    let bad = write("bad.toml", b"[bus]\nclok_mhz = 3\n");
    assert!(fails_with("sim server", bad).contains("clock_mhz"));
}
