use crate::site::{Settings, Site};
use anyhow::{Result, bail};
pub const PACKAGES: [&str; 0] = [];
pub fn prepare(_: &Settings) -> Result<Site> {
    bail!("")
}
