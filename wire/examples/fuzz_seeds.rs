//! Writes the seeds of every target into the folder named first: one folder a target, one file a
//! seed.

#[path = "../tests/support/corpus.rs"]
mod corpus;
#[path = "../tests/support/generator.rs"]
mod generator;
#[path = "../tests/support/targets.rs"]
mod targets;

use std::path::PathBuf;
use std::{env, fs, io};

use generator::Generator;
use targets::TARGETS;

fn main() -> io::Result<()> {
    let Some(folder) = env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: seeds FOLDER");
        std::process::exit(2);
    };
    let mut random = Generator::new();
    for (name, _) in TARGETS {
        let folder = folder.join(name);
        fs::create_dir_all(&folder)?;
        for (index, seed) in corpus::seeds(name, &mut random).iter().enumerate() {
            fs::write(folder.join(format!("seed-{index:03}")), seed)?;
        }
    }
    Ok(())
}
