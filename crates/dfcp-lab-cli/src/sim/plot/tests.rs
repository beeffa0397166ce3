//! Figures of known data.

use clap::Parser;

use super::*;
use crate::sim::plot::query::Panel;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

/// Two protocols, two losses, three seeds, two flows each; goodput is 10 Mbit/s times seed plus
/// 1 Mbit/s for the second flow, and half of that for the second protocol.
const SWEEP: &str = "\
point,link.bottleneck.loss,seed,flow,protocol,goodput_bps,flow.class
0,0.01,1,a,x,10e6,
0,0.01,1,b,x,11e6,
1,0.01,2,a,x,20e6,
1,0.01,2,b,x,21e6,
2,0.01,3,a,x,30e6,
2,0.01,3,b,x,31e6,
3,0,1,a,x,40e6,
0,0.01,1,c,y,5e6,
1,0.01,2,c,y,10e6,
2,0.01,3,c,y,15e6,
";

fn plot_of(csv: &str, out: &str, args: &[&str]) -> Result<(Vec<u8>, Vec<String>), Failure> {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data.csv");
    std::fs::write(&data, csv).unwrap();
    let out = dir.path().join(out);
    let command = ["plot".as_ref(), data.as_os_str()].into_iter();
    let command = command.chain(args.iter().map(|arg| arg.as_ref()));
    let args = Cli::parse_from(command.chain(["-o".as_ref(), out.as_os_str()])).args;
    let warnings = plot(&args)?;
    Ok((std::fs::read(out).unwrap(), warnings))
}

fn refused(args: &[&str]) -> String {
    plot_of(SWEEP, "fig.svg", args).unwrap_err().message
}

/// The words of an SVG, which must be one.
fn words(svg: Vec<u8>) -> Vec<String> {
    let svg = String::from_utf8(svg).unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap();
    assert_eq!(document.root_element().tag_name().name(), "svg");
    for polyline in document
        .descendants()
        .filter_map(|node| node.attribute("points"))
    {
        let numbers = polyline.split([' ', ',']).map(str::parse::<f64>);
        assert!(
            numbers
                .into_iter()
                .all(|number| number.unwrap().is_finite())
        );
    }
    let texts = document
        .descendants()
        .filter(|node| node.has_tag_name("text"));
    texts
        .filter_map(|node| node.text().map(|text| text.trim().to_owned()))
        .collect()
}

fn selected(csv: &str, query: &Query) -> Data {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.csv");
    std::fs::write(&path, csv).unwrap();
    let (table, parameters) = load(&[path]).unwrap();
    let query = Query {
        parameters,
        ..query.clone()
    };
    query::select(table, &query).unwrap()
}

#[test]
fn flows_are_combined_before_seeds_are_compared() {
    let data = selected(SWEEP, &Query::default());
    assert_eq!(data.curves, ["x", "y"]);
    let [Panel { curves, .. }] = &data.panels[..] else {
        panic!("one panel");
    };
    assert_eq!(curves[0].len(), 2, "zero and one per cent");
    // 10.5, 20.5 and 30.5 Mbit/s: deviation 10, t = 4.303, n = 3.
    let (single, sample) = (curves[0][0], curves[0][1]);
    assert_eq!((single.x, single.y.half_width), (0.0, None));
    assert!((sample.y.mean - 20.5e6).abs() < 1.0);
    let half_width = sample.y.half_width.unwrap();
    assert!(
        (half_width - 4.3027 * 10e6 / 3f64.sqrt()).abs() < 1e3,
        "{half_width}"
    );
    let sum = Query {
        combine: Combine::Sum,
        ..Query::default()
    };
    let sum = selected(SWEEP, &sum).panels[0].curves[0][1];
    assert!((sum.y.mean - 41e6).abs() < 1.0);
}

#[test]
fn an_svg_has_the_words_of_its_data() {
    let (svg, warnings) = plot_of(SWEEP, "fig.svg", &["--title", "a < b & c"]).unwrap();
    let words = words(svg);
    for expected in [
        "a < b & c",
        "Goodput (Mbit/s)",
        "Bottleneck loss (%)",
        "x",
        "y",
        "0.4",
    ] {
        assert!(
            words.iter().any(|word| word == expected),
            "{expected} in {words:?}"
        );
    }
    // The interval reaches below zero, a goodput does not.
    assert!(!words.iter().any(|word| word.starts_with('−')), "{words:?}");
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn a_title_wider_than_the_figure_takes_lines() {
    let long =
        "a title of so many words that a column of a journal has no room for them in one line";
    let (svg, _) = plot_of(SWEEP, "fig.svg", &["--title", long]).unwrap();
    let words = self::words(svg);
    assert!(!words.iter().any(|line| line == long), "{words:?}");
    let first = words.iter().position(|line| line.starts_with("a title of"));
    let lines = &words[first.unwrap()..][..2];
    assert_eq!(lines.join(" "), long);
}

#[test]
fn a_png_shows_the_curves() {
    let (png, _) = plot_of(SWEEP, "fig.png", &[]).unwrap();
    let pixmap = tiny_skia::Pixmap::decode_png(&png).unwrap();
    assert_eq!(pixmap.width(), 1050, "3.5 inches at 300 dots");
    for (red, green, blue) in [(0x00, 0x72, 0xb2), (0xd5, 0x5e, 0x00)] {
        let pixels = pixmap.pixels().iter();
        let same = pixels.filter(|p| (p.red(), p.green(), p.blue()) == (red, green, blue));
        assert!(
            same.count() > 500,
            "a curve in #{red:02x}{green:02x}{blue:02x}"
        );
    }
}

#[test]
fn a_wrong_column_is_named_with_the_right_ones() {
    let message = refused(&["--y", "goodput"]);
    assert!(message.contains("no column \"goodput\""), "{message}");
    assert!(
        message.contains("goodput_bps") && !message.contains("file"),
        "{message}"
    );
    assert!(refused(&["--only", "seed=9"]).contains("no row has \"9\" in seed"));
    assert!(refused(&["--y", "flow"]).contains("holds words"));
    assert!(refused(&["--y", "flow.class"]).contains("no value"));
    let unswept = plot_of("flow,goodput_bps\na,1\n", "fig.svg", &[]).unwrap_err();
    assert!(unswept.message.contains("--x"), "{unswept}");
    assert!(
        plot_of(SWEEP, "fig.pdf", &[])
            .unwrap_err()
            .message
            .contains(".svg or .png")
    );
}

#[test]
fn what_is_averaged_or_left_out_is_said() {
    let (_, warnings) = plot_of(SWEEP, "fig.svg", &["--x", "seed"]).unwrap();
    assert!(
        warnings[0].contains("2 values of link.bottleneck.loss"),
        "{warnings:?}"
    );
    let (_, warnings) = plot_of(SWEEP, "fig.svg", &["--log-x"]).unwrap();
    assert!(
        warnings[0].contains("1 points at or below zero"),
        "{warnings:?}"
    );
}

#[test]
fn values_with_units_and_words_are_axes() {
    let csv = "point,delay,discipline,seed,goodput_bps\n\
               0,100 ms,fifo,1,3\n1,2 ms,drr,1,4\n2,30 ms,drr,1,5\n";
    let delay = selected(csv, &Query::default());
    let places: Vec<_> = delay.panels[0]
        .curves
        .iter()
        .flatten()
        .map(|s| s.x)
        .collect();
    assert_eq!(places, [0.1, 0.002, 0.03], "a curve each for fifo and drr");
    let swapped = "point,discipline,delay,seed,goodput_bps\n0,fifo,2 ms,1,3\n1,drr,2 ms,1,4\n";
    assert_eq!(selected(swapped, &Query::default()).x.name, "Delay");
    let query = Query {
        x: Some("discipline".into()),
        by: Some("delay".into()),
        ..Query::default()
    };
    let words = selected(csv, &query);
    assert_eq!(words.x.categories, ["fifo", "drr"]);
    assert_eq!(words.curves, ["2 ms", "30 ms", "100 ms"]);
}

#[test]
fn a_moving_average_follows_each_curve() {
    let csv = "name,time_s,goodput_bps\n\
               a,0.1,1\na,0.2,3\na,0.3,5\na,0.4,9\nb,0.1,7\nb,0.2,7\n";
    let query = Query {
        window: Some(0.2),
        ..Query::default()
    };
    let data = selected(csv, &query);
    let means: Vec<_> = data.panels[0].curves[0].iter().map(|s| s.y.mean).collect();
    assert_eq!(means, [1.0, 2.0, 4.0, 7.0]);
    assert_eq!(data.x.name, "Time");
}

#[test]
fn panels_share_axes() {
    let args = ["--facet", "protocol", "--by", "seed", "--width", "page"];
    let words = words(plot_of(SWEEP, "fig.svg", &args).unwrap().0);
    let count = |text: &str| words.iter().filter(|word| *word == text).count();
    assert_eq!((count("Protocol: x"), count("Protocol: y")), (1, 1));
    assert_eq!(count("Goodput (Mbit/s)"), 1);
    assert_eq!(
        count("20"),
        1,
        "ticks of the vertical axis stand at the left only"
    );
}
