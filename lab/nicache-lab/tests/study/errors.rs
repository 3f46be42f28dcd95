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
    let prose = write(
        "prose",
        b"It was a dark and stormy night, and nobody made a request.\nNobody at all.\n",
    );
    assert!(fails_with("trace info --format common", prose).contains("--format"));
    assert!(
        fails_with("trace advise", write("posts", b"1\ta\tPOST\t/\t200\t1\n"))
            .contains("could be answered from a cache")
    );
    let cut = std::fs::read(trace("epa-http.txt.zst")).unwrap();
    assert!(fails_with("trace info", write("cut.zst", &cut[..9])).contains("cut.zst"));
    let mostly = b"1\ta\tGET\t/\t200\t1\nx\ny\n2\ta\tGET\t/\t200\t1\nz\n";
    assert!(fails_with("trace advise", write("mostly", mostly)).contains("only 2 of 5 lines"));
    let epa = || Some(trace("epa-http.txt.zst"));
    assert!(fails_with("sim curve --policies lfru", epa()).contains("s3-fifo"));
    assert!(fails_with("sim curve --sizes 0", epa()).contains("no size"));
    assert!(fails_with("sim curve --policies lirs:hair=5%", epa()).contains("it has hir"));
    assert!(
        fails_with("sim curve --policies pfoo-l+second-hit", epa())
            .contains("takes no admission filter")
    );
    assert!(fails_with("trace info --format csv:time,size", epa()).contains("must be the key"));
    for words in [
        "sim curve --sample 1000",
        "sim curve --sample 1000 --policies fifo",
        "trace advise --sample 1000",
    ] {
        let disk = Some(trace("cloudphysics.vscsi.zst"));
        assert!(fails_with(words, disk).contains("trace convert --unit blocks"), "{words}");
    }
    assert!(
        fails_with("sim curve --report /no/such/folder/r.html", epa())
            .contains("/no/such/folder/r.html")
    );
    assert!(fails_with("sim server Short9MB", None).contains("Short8MB"));
    assert!(fails_with("sim reproduce kim-fig3", None).contains("TRACE"));
    let bad = write("bad.toml", b"[bus]\nclok_mhz = 3\n");
    assert!(fails_with("sim server", bad).contains("clock_mhz"));
}

/// Every verb that reads a trace refuses what is none. A few of the files: all of them take
/// minutes.
#[test]
fn programs_are_no_traces() {
    let mut programs: Vec<PathBuf> = std::fs::read_dir("/usr/bin")
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0)
        })
        .collect();
    programs.sort();
    let step = programs.len().div_ceil(40).max(1);
    for program in programs.iter().step_by(step).chain([&PathBuf::from("/bin/sh")]) {
        let error = fails_with("trace advise", Some(program.clone()));
        assert!(error.contains("it is not a trace: it is "), "{}: {error}", program.display());
    }
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("site");
    let sh = || Some(PathBuf::from("/bin/sh"));
    for words in [
        "trace info",
        "sim curve",
        "sim curve --sample 1000",
        "trace info --format u32",
        "sim server Short8MB --trace",
    ] {
        assert!(fails_with(words, sh()).contains("it is a program"), "{words}");
    }
    for words in [format!("trace site /bin/sh {}", site.display()), "replay /bin/sh".to_owned()] {
        assert!(fails_with(&words, None).contains("it is a program"), "{words}");
    }
    assert!(!site.exists());
}
