//! Environment variables: the process's own, with those of a `.env` file below them (chapter 09
//! sections 1 and 2).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use super::ConfigError;

/// Names the `.env` file.
const ENV_PATH: &str = "IGGY_ENV_PATH";
/// Names the configuration file.
const CONFIG_PATH: &str = "IGGY_CONFIG_PATH";
/// The configuration file where nothing names one.
const CONFIG_DEFAULT: &str = "core/server/config.toml";

/// Variables by name. An empty one counts as unset.
#[derive(Clone, Default)]
pub struct Variables {
    named: BTreeMap<String, String>,
}

/// Names only: a value may be a secret.
impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.named.keys()).finish()
    }
}

impl Variables {
    /// Those of this process, and below them those of the `.env` file.
    ///
    /// # Errors
    /// [`ConfigError::DotEnv`] when that file exists and cannot be read.
    pub fn of_process() -> Result<Self, ConfigError> {
        let own = std::env::vars_os().filter_map(|(name, value)| {
            // A name or value that is no text can be none of ours.
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Self::of(own).with_env_file()
    }

    /// These, and below them those of the `.env` file that they name, or that lies here or above.
    pub(super) fn with_env_file(self) -> Result<Self, ConfigError> {
        let mut variables = self;
        let wanted = variables.get(ENV_PATH).unwrap_or(".env").to_owned();
        let Some(path) = search(Path::new(&wanted)) else {
            return Ok(variables);
        };
        let failed = |source| ConfigError::DotEnv {
            path: path.clone(),
            source,
        };
        for entry in dotenvy::from_path_iter(&path).map_err(failed)? {
            let (name, value) = entry.map_err(failed)?;
            if !value.is_empty() {
                variables.named.entry(name).or_insert(value);
            }
        }
        Ok(variables)
    }

    /// The given ones.
    pub fn of(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        let named = pairs
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .collect();
        Self { named }
    }

    /// A variable that is set and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.named.get(name).map(String::as_str)
    }

    /// All whose name begins with `IGGY_`.
    pub(super) fn of_iggy(&self) -> impl Iterator<Item = (&str, &str)> {
        self.named
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .filter(|(name, _)| name.starts_with("IGGY_"))
    }

    /// Where the configuration file should be, and where it is.
    pub(super) fn config_file(&self) -> (PathBuf, Option<PathBuf>) {
        let wanted = PathBuf::from(self.get(CONFIG_PATH).unwrap_or(CONFIG_DEFAULT));
        let found = search(&wanted);
        (wanted, found)
    }

    /// The effective configuration goes to the log unless this says otherwise.
    pub fn display_config(&self) -> bool {
        self.get("IGGY_DISPLAY_CONFIG")
            .is_none_or(|text| text == "1" || text.eq_ignore_ascii_case("true"))
    }
}

/// True for the name of a variable that a configuration is read from.
pub fn is_configuration(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| {
        name.starts_with("IGGY_")
            && (!super::environment::is_exempt(name) || name == CONFIG_PATH || name == ENV_PATH)
    })
}

/// A relative path is looked for in the working directory and then in each of its parents.
fn search(wanted: &Path) -> Option<PathBuf> {
    if wanted.is_absolute() {
        return wanted.is_file().then(|| wanted.to_owned());
    }
    let working = std::env::current_dir().ok()?;
    working
        .ancestors()
        .map(|folder| folder.join(wanted))
        .find(|path| path.is_file())
}
