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
    let reuse: Vec<u64> =
        info["reuse"].as_array().unwrap().iter().map(|reuse| reuse["size"].as_u64().unwrap()).collect();
    assert!(reuse.len() == 5 && reuse.is_sorted() && reuse[0] > 0, "{reuse:?}");
    assert!((0.5..1.5).contains(&info["zipf"]["exponent"].as_f64().unwrap()));
}

#[test]
fn bad_lines_are_counted_and_shown() {
    let epa = trace("epa-http.txt.zst");
    let info = json("trace info --json", &[&epa]);
    assert_eq!(info["read"]["bad_records"], 21);
    let errors = String::from_utf8(nicache(["trace".into(), "info".into(), epa.into_os_string()]).stderr).unwrap();
    assert!(errors.contains("21 lines") && errors.contains("epa-http.txt.zst:7527: no status"), "{errors}");
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
    assert!(sentence.contains(" of requests, ") && sentence.contains("the knee is at "), "{sentence}");
    let size = advice["advice"]["size"].as_u64().unwrap();
    assert!(size.is_power_of_two() && advice["advice"]["knee"].as_u64().unwrap() <= size);
    let policy = advice["advice"]["choice"].as_str().unwrap();
    let help = String::from_utf8(nicache(["run", "--help"]).stdout).unwrap();
    assert!(help.contains(policy), "{policy} is no policy of `nicache run`");
    let bytes = json("trace advise --json --for bytes --policies lru,gdsf", &[&trace("epa-http.txt.zst")]);
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
