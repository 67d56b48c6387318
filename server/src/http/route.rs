//! The table of routes (chapter 08 section 4): which method and path is what, and who serves it.

use percent_encoding::percent_decode_str;

/// A method this interface knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// GET.
    Get,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// DELETE.
    Delete,
    /// OPTIONS.
    Options,
}

impl Method {
    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
        }
    }
}

/// Who serves a request on a follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The follower itself.
    Local,
    /// The metadata primary, except for reads that may be a little old.
    Primary,
    /// The follower, and if its partition is led elsewhere, whoever leads it.
    Partition,
}

/// Who may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Anybody.
    Public,
    /// Who shows a bearer token.
    Bearer,
}

/// What is asked. Named after the commands of the client protocol where there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum Endpoint {
    Page,
    Live,
    Ready,
    Status,
    StatusGroups,
    Metrics,
    Ping,
    Stats,
    ClusterMetadata,
    Clients,
    Client,
    Options,
    Snapshot,
    Login,
    RefreshToken,
    Logout,
    Users,
    CreateUser,
    User,
    UpdateUser,
    DeleteUser,
    ChangePassword,
    UpdatePermissions,
    TokenLogin,
    Tokens,
    CreateToken,
    DeleteToken,
    Streams,
    CreateStream,
    Stream,
    UpdateStream,
    DeleteStream,
    PurgeStream,
    Topics,
    CreateTopic,
    Topic,
    UpdateTopic,
    DeleteTopic,
    PurgeTopic,
    CreatePartitions,
    DeletePartitions,
    DeleteSegments,
    Groups,
    CreateGroup,
    Group,
    DeleteGroup,
    Poll,
    Send,
    GetOffset,
    StoreOffset,
    DeleteOffset,
}

/// A row of the table. A segment `*` of the path is a parameter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route {
    /// Method.
    pub(crate) method: Method,
    path: &'static str,
    /// What it is.
    pub(crate) endpoint: Endpoint,
    /// Who serves it.
    pub(crate) place: Place,
    /// Who may ask.
    pub(crate) access: Access,
}

const fn route(method: Method, path: &'static str, endpoint: Endpoint, place: Place) -> Route {
    Route {
        method,
        path,
        endpoint,
        place,
        access: Access::Bearer,
    }
}

const fn public(method: Method, path: &'static str, endpoint: Endpoint) -> Route {
    Route {
        access: Access::Public,
        ..route(method, path, endpoint, Place::Local)
    }
}

use Endpoint as E;
use Method::{Delete, Get, Post, Put};
use Place::{Local, Partition, Primary};

const TOPICS: &str = "/streams/*/topics";
const TOPIC: &str = "/streams/*/topics/*";
const PARTITIONS: &str = "/streams/*/topics/*/partitions";
const GROUPS: &str = "/streams/*/topics/*/consumer-groups";
const GROUP: &str = "/streams/*/topics/*/consumer-groups/*";
const MESSAGES: &str = "/streams/*/topics/*/messages";
const OFFSETS: &str = "/streams/*/topics/*/consumer-offsets";

/// All routes; the first that fits counts.
const ROUTES: &[Route] = &[
    public(Get, "/", E::Page),
    public(Get, "/health", E::Live),
    public(Get, "/health/live", E::Live),
    public(Get, "/health/ready", E::Ready),
    public(Get, "/ping", E::Ping),
    route(Get, "/status", E::Status, Local),
    route(Get, "/status/groups", E::StatusGroups, Local),
    route(Get, "/stats", E::Stats, Local),
    route(Get, "/cluster/metadata", E::ClusterMetadata, Local),
    route(Get, "/clients", E::Clients, Local),
    route(Get, "/clients/*", E::Client, Local),
    route(Get, "/options/*", E::Options, Local),
    route(Post, "/snapshot", E::Snapshot, Local),
    public(Post, "/users/login", E::Login),
    public(Post, "/users/refresh-token", E::RefreshToken),
    route(Delete, "/users/logout", E::Logout, Primary),
    route(Get, "/users", E::Users, Primary),
    route(Post, "/users", E::CreateUser, Primary),
    route(Get, "/users/*", E::User, Primary),
    route(Put, "/users/*", E::UpdateUser, Primary),
    route(Delete, "/users/*", E::DeleteUser, Primary),
    route(Put, "/users/*/password", E::ChangePassword, Primary),
    route(Put, "/users/*/permissions", E::UpdatePermissions, Primary),
    public(Post, "/personal-access-tokens/login", E::TokenLogin),
    route(Get, "/personal-access-tokens", E::Tokens, Primary),
    route(Post, "/personal-access-tokens", E::CreateToken, Primary),
    route(Delete, "/personal-access-tokens/*", E::DeleteToken, Primary),
    route(Get, "/streams", E::Streams, Primary),
    route(Post, "/streams", E::CreateStream, Primary),
    route(Get, "/streams/*", E::Stream, Primary),
    route(Put, "/streams/*", E::UpdateStream, Primary),
    route(Delete, "/streams/*", E::DeleteStream, Primary),
    route(Delete, "/streams/*/purge", E::PurgeStream, Primary),
    route(Get, TOPICS, E::Topics, Primary),
    route(Post, TOPICS, E::CreateTopic, Primary),
    route(Get, TOPIC, E::Topic, Primary),
    route(Put, TOPIC, E::UpdateTopic, Primary),
    route(Delete, TOPIC, E::DeleteTopic, Primary),
    route(Delete, "/streams/*/topics/*/purge", E::PurgeTopic, Primary),
    route(Post, PARTITIONS, E::CreatePartitions, Primary),
    route(Delete, PARTITIONS, E::DeletePartitions, Primary),
    route(
        Delete,
        "/streams/*/topics/*/partitions/*",
        E::DeleteSegments,
        Primary,
    ),
    route(Get, GROUPS, E::Groups, Primary),
    route(Post, GROUPS, E::CreateGroup, Primary),
    route(Get, GROUP, E::Group, Primary),
    route(Delete, GROUP, E::DeleteGroup, Primary),
    route(Get, MESSAGES, E::Poll, Local),
    route(Post, MESSAGES, E::Send, Partition),
    route(Get, OFFSETS, E::GetOffset, Local),
    route(Put, OFFSETS, E::StoreOffset, Partition),
    route(
        Delete,
        "/streams/*/topics/*/consumer-offsets/*",
        E::DeleteOffset,
        Partition,
    ),
];

/// Where a request leads.
#[derive(Debug)]
pub(crate) enum Found {
    /// Here, with these parameters.
    Route(Route, Vec<String>),
    /// The path is known, the method is not; these are.
    OtherMethods(String),
    /// A parameter is no text.
    BadParameter,
    /// Nowhere.
    Nothing,
}

/// Looks a request up. `metrics` is the path of the metrics, when they are served.
pub(crate) fn find(method: Option<Method>, path: &str, metrics: Option<&str>) -> Found {
    let scrape = metrics.filter(|endpoint| *endpoint == path);
    let scrape = scrape.map(|_| route(Get, "", E::Metrics, Local));
    if let Some(scrape) = scrape
        && method == Some(Get)
    {
        return Found::Route(scrape, Vec::new());
    }
    let mut allowed: Vec<&str> = scrape.iter().map(|route| route.method.name()).collect();
    for route in ROUTES {
        let Some(raw) = parameters(route.path, path) else {
            continue;
        };
        if Some(route.method) != method {
            let name = route.method.name();
            if !allowed.contains(&name) {
                allowed.push(name);
            }
            continue;
        }
        let decoded: Result<Vec<String>, _> = raw
            .into_iter()
            .map(|text| {
                let text = percent_decode_str(text).decode_utf8();
                text.map(std::borrow::Cow::into_owned)
            })
            .collect();
        return match decoded {
            Ok(parameters) => Found::Route(*route, parameters),
            Err(_) => Found::BadParameter,
        };
    }
    if allowed.is_empty() {
        Found::Nothing
    } else {
        Found::OtherMethods(allowed.join(","))
    }
}

/// The parameters, when the path fits.
fn parameters<'a>(pattern: &str, path: &'a str) -> Option<Vec<&'a str>> {
    let mut found = Vec::new();
    let mut segments = path.split('/');
    for wanted in pattern.split('/') {
        let segment = segments.next()?;
        match wanted {
            "*" if !segment.is_empty() => found.push(segment),
            _ if wanted == segment => {}
            _ => return None,
        }
    }
    segments.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(method: Method, path: &str) -> Option<(Endpoint, Vec<String>)> {
        match find(Some(method), path, Some("/metrics")) {
            Found::Route(route, parameters) => Some((route.endpoint, parameters)),
            _ => None,
        }
    }

    #[test]
    fn paths_lead_where_the_table_says() {
        let found = endpoint(Get, "/streams/a%20b/topics/7/messages").unwrap();
        assert_eq!(found, (E::Poll, vec!["a b".to_owned(), "7".to_owned()]));
        // The fixed word wins over the parameter.
        assert_eq!(endpoint(Delete, "/users/logout").unwrap().0, E::Logout);
        assert_eq!(endpoint(Delete, "/users/logouts").unwrap().0, E::DeleteUser);
        assert_eq!(endpoint(Get, "/metrics").unwrap().0, E::Metrics);
        assert_eq!(endpoint(Get, "/streams/").map(|found| found.0), None);
        assert_eq!(endpoint(Get, "/streams//topics").map(|found| found.0), None);
        assert_eq!(endpoint(Get, "/nowhere").map(|found| found.0), None);
    }

    #[test]
    fn a_wrong_method_names_the_right_ones() {
        let Found::OtherMethods(allowed) = find(Some(Put), "/streams", None) else {
            panic!("the path is known");
        };
        assert_eq!(allowed, "GET,POST");
        assert!(matches!(
            find(None, "/ping", None),
            Found::OtherMethods(allowed) if allowed == "GET"
        ));
        assert!(matches!(find(Some(Get), "/metrics", None), Found::Nothing));
    }

    #[test]
    fn a_parameter_that_is_no_text_is_noticed() {
        assert!(matches!(
            find(Some(Get), "/streams/%ff", None),
            Found::BadParameter
        ));
    }
}
