//! What is in a trace, and what to do for it.

use crate::run::{json, nicache, trace};

#[test]
fn information_is_right() {
    let info = json("trace info --json", &[&trace("wp-blog-2016.tsv.zst")]);
    assert_eq!((info["requests"].as_u64(), info["clients"].as_u64()), (Some(206_860), Some(8799)));
    assert_eq!(info["read"]["bad_records"], 0);
    // `cut -f4 | sort | uniq -c | sort -n | tail -1` over GET and HEAD with 200, 206 and 304.
    assert_eq!(info["top"][0]["name"], "/");
    assert_eq!(info["top"][0]["requests"].as_u64(), Some(63_954));
    let shares = info["top_shares"].as_array().unwrap();
    assert!(shares.windows(2).all(|pair| pair[0].as_f64() < pair[1].as_f64()));
    let reuse: Vec<u64> = info["reuse"]
        .as_array()
        .unwrap()
        .iter()
        .map(|reuse| reuse["size"].as_u64().unwrap())
        .collect();
    assert!(reuse.len() == 5 && reuse.is_sorted() && reuse[0] > 0, "{reuse:?}");
    assert!((0.5..1.5).contains(&info["zipf"]["exponent"].as_f64().unwrap()));
}

#[test]
fn bad_lines_are_counted_and_shown() {
    let epa = trace("epa-http.txt.zst");
    let info = json("trace info --json", &[&epa]);
    assert_eq!(info["read"]["bad_records"], 21);
    let errors =
        String::from_utf8(nicache(["trace".into(), "info".into(), epa.into_os_string()]).stderr)
            .unwrap();
    assert!(
        errors.contains("21 lines") && errors.contains("epa-http.txt.zst:7527: no status"),
        "{errors}"
    );
}

#[test]
fn files_of_one_log_are_read_in_order() {
    let (blog, nasa) = (trace("wp-blog-2016.tsv.zst"), trace("nasa-aug95-first20000.txt.zst"));
    let info = json("trace info --json", &[&blog, &nasa]);
    assert_eq!(info["requests"].as_u64(), Some(226_860));
    let first = json("trace info --json --first 1000", &[&blog, &nasa]);
    assert_eq!(first["requests"].as_u64(), Some(1000));
}

#[test]
fn advice_is_a_sentence_that_a_card_can_follow() {
    let advice = json("trace advise --json", &[&trace("epa-http.txt.zst")]);
    let sentence = advice["sentences"][0].as_str().unwrap();
    assert!(
        sentence.contains(": a hit rate of ") && sentence.contains("the knee is at "),
        "{sentence}"
    );
    let compared = advice["sentences"][1].as_str().unwrap();
    assert!(
        compared.contains("; Belady ") && compared.contains("(knows the future; not a bound here)"),
        "{compared}"
    );
    assert!(compared.contains("upper bound for any policy "), "{compared}");
    let size = advice["advice"]["size"].as_u64().unwrap();
    assert!(size.is_power_of_two() && advice["advice"]["knee"].as_u64().unwrap() <= size);
    let policy = advice["advice"]["choice"].as_str().unwrap();
    let operator =
        std::path::Path::new(env!("CARGO_BIN_EXE_nicache-lab")).with_file_name("nicache");
    let help = std::process::Command::new(operator)
        .args(["run", "--help"])
        .output()
        .expect("nicache is beside nicache-lab");
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains(policy), "{policy} is no policy of `nicache run`");
    let bytes =
        json("trace advise --json --for bytes --policies lru,gdsf", &[&trace("epa-http.txt.zst")]);
    assert_eq!(bytes["advice"]["objective"], "bytes");
}

#[test]
fn converted_traces_are_the_same_trace() {
    let folder = tempfile::tempdir().unwrap();
    let (blog, tsv) = (trace("nasa-aug95-first20000.txt.zst"), folder.path().join("nasa.tsv"));
    let output = nicache([
        "trace".as_ref(),
        "convert".as_ref(),
        "--to".as_ref(),
        "tsv".as_ref(),
        blog.as_os_str(),
        tsv.as_os_str(),
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let words = "sim curve --json --policies lru,s3-fifo --sizes 1M,4M";
    assert_eq!(json(words, &[&blog])["curves"], json(words, &[&tsv])["curves"]);
}

/// A script that half of the clients take gzipped, and a page that all take plain.
fn coded(lines: u64) -> String {
    let line = |at: u64| {
        let (target, bytes) = match mix(at) % 4 {
            0 => ("/app.js".to_owned(), 30_000),
            1 => ("/app.js".to_owned(), 9_000),
            _ => (format!("/page{}", mix(at * 7) % 8), 2_000),
        };
        format!("{at}\tc\tGET\t{target}\t200\t{bytes}\n")
    };
    (1..=lines).map(line).collect()
}

fn mix(number: u64) -> u64 {
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33)
        ^ (number.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 40)
}

#[test]
fn variants_are_objects_and_what_they_change_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (plain, told) = (folder.path().join("plain"), folder.path().join("told"));
    std::fs::write(&plain, coded(4000)).unwrap();
    // The same with the coding in a column.
    let with_coding = |line: &str| {
        format!("{line}\t{}\n", if line.ends_with("\t9000") { "gzip" } else { "identity" })
    };
    std::fs::write(&told, coded(4000).lines().map(with_coding).collect::<String>()).unwrap();
    let hits = |words: &str, file: &std::path::Path| {
        let json = json(&format!("sim curve --json --policies lru --sizes 1M {words}"), &[file]);
        (crate::run::hits(&json, "lru")[0], json)
    };
    // Ten objects, each asked for first once.
    for (words, file) in
        [("", &plain), ("--variants sizes", &plain), ("", &told), ("--variants coding", &told)]
    {
        let (got, json) = hits(words, file);
        assert_eq!(got, 3990, "{words}");
        assert_eq!(json["totals"]["varying_targets"], 1);
        assert!(json["curves_without_variants"][0]["points"][0]["hits"].as_u64().unwrap() != got);
    }
    let (none, json) = hits("--variants none", &plain);
    assert!(none != 3990 && json["curves_without_variants"].is_null());
    assert_eq!(hits("--variants coding", &plain).0, none);
    let advice = crate::run::json("trace advise --json", &[&plain]);
    let said = advice["sentences"].as_array().unwrap().last().unwrap().as_str().unwrap();
    assert!(
        said.contains(" of all requests are for targets with variants (1 in all)")
            && said.contains("differ by up to "),
        "{said}"
    );
    assert!(
        advice["sensitivity"]["byte_hit_rate_points_max"].as_f64().unwrap() > 5.0,
        "{}",
        advice["sensitivity"]
    );
}

#[test]
fn a_log_that_is_cut_off_is_read_as_far_as_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut.zst");
    let whole = std::fs::read(trace("epa-http.txt.zst")).unwrap();
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let output = nicache(["trace".as_ref(), "info".as_ref(), "--json".as_ref(), cut.as_os_str()]);
    assert!(output.status.success());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("cut.zst: its zstd data is damaged or cut off near byte"), "{errors}");
    let info: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let requests = info["requests"].as_u64().unwrap();
    assert!((10_000..40_000).contains(&requests), "{requests}");
    assert!(errors.contains(&format!("the {requests} requests before that count")), "{errors}");
}

#[test]
fn samples_are_near_the_whole() {
    let blog = trace("wp-blog-2016.tsv.zst");
    let (all, some) =
        (json("trace info --json", &[&blog]), json("trace info --json --sample 1500", &[&blog]));
    for name in ["requests", "bytes", "cacheable", "writes"] {
        assert_eq!(all[name], some[name], "{name}");
    }
    assert!(some["sample_rate"].as_f64().unwrap() < 0.5);
    for name in ["objects", "clients", "objects_once"] {
        let of = |json: &serde_json::Value| json[name].as_f64().unwrap();
        assert!((of(&some) / of(&all) - 1.0).abs() < 0.15, "{name}: {} {}", all[name], some[name]);
    }
    let advice = json("trace advise --json --sample 1500 --policies lru,gdsf", &[&blog]);
    let said = advice["sentences"].to_string();
    assert!(said.contains("from a sample of "), "{said}");
    let whole = json("sim curve --json --policies lru,gdsf --sizes 16M", &[&blog]);
    let sampled = json("sim curve --json --policies lru,gdsf --sizes 16M --sample 1500", &[&blog]);
    for curve in 0..2 {
        let of = |json: &serde_json::Value| {
            json["curves"][curve]["points"][0]["hit_rate"].as_f64().unwrap()
        };
        assert!((of(&whole) - of(&sampled)).abs() < 0.06, "{} {}", of(&whole), of(&sampled));
    }
}

/// Whatever a trace says of its sizes.
#[test]
fn sums_beyond_64_bits_are_no_problem() {
    let line = |at: u64| format!("{at},k{},{}\n", at % 7, u64::MAX - at % 3);
    let table = format!("time,key,sent\n{}", (0..300).map(line).collect::<String>());
    for words in [
        "trace info --json -",
        "trace advise --json -",
        "sim curve --json -",
        "sim curve --json --sample 1000 -",
    ] {
        let json = crate::run::json_of_input(words, table.as_bytes());
        assert!(json["totals"]["bytes"].as_f64().unwrap() > 5e21, "{words}: {}", json["totals"]);
    }
}

#[test]
fn other_formats_are_studied() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let keys: Vec<u64> = (0..4000).map(|at| mix(at) % 97).collect();
    let u64s = write("u64", &keys.iter().flat_map(|key| key.to_le_bytes()).collect::<Vec<u8>>());
    let u32s =
        write("u32", &keys.iter().flat_map(|key| (*key as u32).to_le_bytes()).collect::<Vec<u8>>());
    let lines =
        |line: &dyn Fn(u64) -> String| keys.iter().map(|key| line(*key)).collect::<String>();
    let texts = write("keys", lines(&|key| format!("{key}\n")).as_bytes());
    let lis = write("x.lis", lines(&|key| format!("{key} 1 0 7\n")).as_bytes());
    let csv =
        write("csv", format!("op;obj_id\n{}", lines(&|key| format!("get;{key}\n"))).as_bytes());
    let hits = |words: &str, path: &std::path::Path| {
        crate::run::hits(
            &json(&format!("sim curve --json --policies lru,belady,pfoo-l {words}"), &[path]),
            "lru",
        )
    };
    let expected = hits("--room one --sizes 20,50", &texts);
    assert!(expected[0] > 0 && expected[0] < expected[1]);
    assert_eq!(hits("--room one --sizes 20,50 --format u64", &u64s), expected);
    assert_eq!(hits("--room one --sizes 20,50 --format u32", &u32s), expected);
    assert_eq!(hits("--room one --sizes 20,50", &csv), expected);
    assert_eq!(hits("--sizes 80K,200K", &lis), expected);
    // All of one size: Belady's choice is a bound.
    let bounds = json("sim curve --json --policies belady,pfoo-l --sizes 80K", &[&lis]);
    assert_eq!(
        (&bounds["curves"][0]["is_bound"], &bounds["curves"][1]["is_bound"]),
        (&true.into(), &true.into())
    );
    assert!(crate::run::hits(&bounds, "belady") <= crate::run::hits(&bounds, "pfoo-l"));
}
