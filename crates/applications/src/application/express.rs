use crate::site::{Settings, Site};
use anyhow::{Result, bail};
pub fn packages() -> Vec<&'static [&'static str]> {
    vec![]
}
pub fn prepare(_: &Settings) -> Result<Site> {
    bail!("")
}
