//! The shared error codes: statuses, result codes and client-side errors in one number space
//! (chapter 05 section 12, chapter 06 section 21).
//!
//! Only the number travels. Ranges the specification lists without names are left out; a
//! number that is not here reads as `None`, and clients treat it as 1.

use std::fmt;

macro_rules! error_codes {
    ($($(#[$meta:meta])* $variant:ident = $code:literal $name:literal,)*) => {
        /// An error a server can answer or a client can report.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum ErrorCode {
            $($(#[$meta])* $variant = $code,)*
        }

        /// Code and snake-case name of every error, in numeric order.
        const TABLE: &[(ErrorCode, &str)] = &[$((ErrorCode::$variant, $name),)*];
    };
}

error_codes! {
    /// Generic, unexpected failure.
    Error = 1 "error",
    /// Invalid configuration.
    InvalidConfiguration = 2 "invalid_configuration",
    /// Undecodable body, unknown read code.
    InvalidCommand = 3 "invalid_command",
    /// Request checksum mismatch.
    InvalidFormat = 4 "invalid_format",
    /// Feature unavailable.
    FeatureUnavailable = 5 "feature_unavailable",
    /// Invalid identifier.
    InvalidIdentifier = 6 "invalid_identifier",
    /// Invalid version.
    InvalidVersion = 7 "invalid_version",
    /// Disconnected.
    Disconnected = 8 "disconnected",
    /// Cannot establish connection.
    CannotEstablishConnection = 9 "cannot_establish_connection",
    /// Cannot create base directory.
    CannotCreateBaseDirectory = 10 "cannot_create_base_directory",
    /// Cannot create runtime directory.
    CannotCreateRuntimeDirectory = 11 "cannot_create_runtime_directory",
    /// Cannot remove runtime directory.
    CannotRemoveRuntimeDirectory = 12 "cannot_remove_runtime_directory",
    /// Cannot create state directory.
    CannotCreateStateDirectory = 13 "cannot_create_state_directory",
    /// State file not found.
    StateFileNotFound = 14 "state_file_not_found",
    /// State file corrupted.
    StateFileCorrupted = 15 "state_file_corrupted",
    /// Invalid state entry checksum.
    InvalidStateEntryChecksum = 16 "invalid_state_entry_checksum",
    /// Cannot open database.
    CannotOpenDatabase = 19 "cannot_open_database",
    /// User or token not found; a partition operation that does not resolve.
    ResourceNotFound = 20 "resource_not_found",
    /// Cannot close web socket connection.
    CannotCloseWebSocketConnection = 21 "cannot_close_web_socket_connection",
    /// Attach to a session that is gone.
    StaleClient = 30 "stale_client",
    /// Tcp error.
    TcpError = 31 "tcp_error",
    /// Quic error.
    QuicError = 32 "quic_error",
    /// Invalid server address.
    InvalidServerAddress = 33 "invalid_server_address",
    /// Invalid client address.
    InvalidClientAddress = 34 "invalid_client_address",
    /// Invalid ip address.
    InvalidIpAddress = 35 "invalid_ip_address",
    /// Http error.
    HttpError = 36 "http_error",
    /// Invalid api url.
    InvalidApiUrl = 37 "invalid_api_url",
    /// Read before login; no user on the connection.
    Unauthenticated = 40 "unauthenticated",
    /// Unauthorized.
    Unauthorized = 41 "unauthorized",
    /// Invalid credentials.
    InvalidCredentials = 42 "invalid_credentials",
    /// User name length outside 3..=50.
    InvalidUsername = 43 "invalid_username",
    /// Invalid password.
    InvalidPassword = 44 "invalid_password",
    /// Invalid user status.
    InvalidUserStatus = 45 "invalid_user_status",
    /// User already exists.
    UserAlreadyExists = 46 "user_already_exists",
    /// User inactive.
    UserInactive = 47 "user_inactive",
    /// Delete of root.
    CannotDeleteUser = 48 "cannot_delete_user",
    /// Permissions of root.
    CannotChangePermissions = 49 "cannot_change_permissions",
    /// Invalid personal access token name.
    InvalidPersonalAccessTokenName = 50 "invalid_personal_access_token_name",
    /// Personal access token already exists.
    PersonalAccessTokenAlreadyExists = 51 "personal_access_token_already_exists",
    /// Personal access tokens limit reached.
    PersonalAccessTokensLimitReached = 52 "personal_access_tokens_limit_reached",
    /// Invalid personal access token.
    InvalidPersonalAccessToken = 53 "invalid_personal_access_token",
    /// Personal access token expired.
    PersonalAccessTokenExpired = 54 "personal_access_token_expired",
    /// Unused.
    UsersLimitReached = 55 "users_limit_reached",
    /// Expiry instant not in the future.
    InvalidPersonalAccessTokenExpiry = 56 "invalid_personal_access_token_expiry",
    /// Outcome unknown: repeat the same request on the same session.
    TransientNotCommitted = 57 "transient_not_committed",
    /// Nothing was submitted: may be sent anywhere.
    TransientNotAccepted = 58 "transient_not_accepted",
    /// Duplicate whose reply is no longer stored.
    RequestAlreadyApplied = 59 "request_already_applied",
    /// Not connected.
    NotConnected = 61 "not_connected",
    /// Client shutdown.
    ClientShutdown = 63 "client_shutdown",
    /// Invalid tls domain.
    InvalidTlsDomain = 64 "invalid_tls_domain",
    /// Invalid tls certificate path.
    InvalidTlsCertificatePath = 65 "invalid_tls_certificate_path",
    /// Invalid tls certificate.
    InvalidTlsCertificate = 66 "invalid_tls_certificate",
    /// Failed to add certificate.
    FailedToAddCertificate = 67 "failed_to_add_certificate",
    /// Invalid encryption key.
    InvalidEncryptionKey = 70 "invalid_encryption_key",
    /// Cannot encrypt data.
    CannotEncryptData = 71 "cannot_encrypt_data",
    /// Cannot decrypt data.
    CannotDecryptData = 72 "cannot_decrypt_data",
    /// Invalid jwt algorithm.
    InvalidJwtAlgorithm = 73 "invalid_jwt_algorithm",
    /// Invalid jwt secret.
    InvalidJwtSecret = 74 "invalid_jwt_secret",
    /// Jwt missing.
    JwtMissing = 75 "jwt_missing",
    /// Cannot generate jwt.
    CannotGenerateJwt = 76 "cannot_generate_jwt",
    /// Access token missing.
    AccessTokenMissing = 77 "access_token_missing",
    /// Invalid access token.
    InvalidAccessToken = 78 "invalid_access_token",
    /// Cannot fetch jwks.
    CannotFetchJwks = 79 "cannot_fetch_jwks",
    /// Invalid size bytes.
    InvalidSizeBytes = 80 "invalid_size_bytes",
    /// Invalid utf8.
    InvalidUtf8 = 81 "invalid_utf8",
    /// Invalid number encoding.
    InvalidNumberEncoding = 82 "invalid_number_encoding",
    /// Invalid boolean value.
    InvalidBooleanValue = 83 "invalid_boolean_value",
    /// Invalid number value.
    InvalidNumberValue = 84 "invalid_number_value",
    /// Client not found.
    ClientNotFound = 100 "client_not_found",
    /// Invalid client id.
    InvalidClientId = 101 "invalid_client_id",
    /// Connection closed.
    ConnectionClosed = 206 "connection_closed",
    /// Cannot parse header kind.
    CannotParseHeaderKind = 209 "cannot_parse_header_kind",
    /// Http response error.
    HttpResponseError = 300 "http_response_error",
    /// Invalid http request.
    InvalidHttpRequest = 301 "invalid_http_request",
    /// Invalid json response.
    InvalidJsonResponse = 302 "invalid_json_response",
    /// Invalid bytes response.
    InvalidBytesResponse = 303 "invalid_bytes_response",
    /// Empty response.
    EmptyResponse = 304 "empty_response",
    /// Cannot create endpoint.
    CannotCreateEndpoint = 305 "cannot_create_endpoint",
    /// Cannot parse url.
    CannotParseUrl = 306 "cannot_parse_url",
    /// Stream id not found.
    StreamIdNotFound = 1009 "stream_id_not_found",
    /// Stream name not found.
    StreamNameNotFound = 1010 "stream_name_not_found",
    /// Stream directory not found.
    StreamDirectoryNotFound = 1011 "stream_directory_not_found",
    /// Stream name already exists.
    StreamNameAlreadyExists = 1012 "stream_name_already_exists",
    /// Invalid stream name.
    InvalidStreamName = 1013 "invalid_stream_name",
    /// Invalid stream id.
    InvalidStreamId = 1014 "invalid_stream_id",
    /// Cannot read streams.
    CannotReadStreams = 1015 "cannot_read_streams",
    /// Maximum size of the topic below its segment size.
    InvalidTopicSize = 1019 "invalid_topic_size",
    /// Stream id space full.
    TooManyStreams = 1020 "too_many_streams",
    /// Topic id not found.
    TopicIdNotFound = 2010 "topic_id_not_found",
    /// Topic name not found.
    TopicNameNotFound = 2011 "topic_name_not_found",
    /// Topic name already exists.
    TopicNameAlreadyExists = 2013 "topic_name_already_exists",
    /// Invalid topic name.
    InvalidTopicName = 2014 "invalid_topic_name",
    /// Partition count of one request is 0 or above 1000.
    TooManyPartitions = 2015 "too_many_partitions",
    /// Invalid topic id.
    InvalidTopicId = 2016 "invalid_topic_id",
    /// Cannot read topics.
    CannotReadTopics = 2017 "cannot_read_topics",
    /// Invalid replication factor.
    InvalidReplicationFactor = 2018 "invalid_replication_factor",
    /// Delete of more than exist; duplicate or overflowing ids.
    InvalidPartitionsCount = 2019 "invalid_partitions_count",
    /// Topic directory not found.
    TopicDirectoryNotFound = 2020 "topic_directory_not_found",
    /// Topic id space of the stream full.
    TooManyTopics = 2021 "too_many_topics",
    /// Partition not found.
    PartitionNotFound = 3007 "partition_not_found",
    /// No partitions.
    NoPartitions = 3008 "no_partitions",
    /// Topic full.
    TopicFull = 3009 "topic_full",
    /// Partition id space exhausted.
    PartitionIdSpaceExhausted = 3013 "partition_id_space_exhausted",
    /// Consumer offset not found.
    ConsumerOffsetNotFound = 3021 "consumer_offset_not_found",
    /// Not resolved consumer.
    NotResolvedConsumer = 3022 "not_resolved_consumer",
    /// Cannot open consumer offsets file.
    CannotOpenConsumerOffsetsFile = 3023 "cannot_open_consumer_offsets_file",
    /// Too many consumer offsets.
    TooManyConsumerOffsets = 3024 "too_many_consumer_offsets",
    /// Invalid messages count.
    InvalidMessagesCount = 4009 "invalid_messages_count",
    /// Too big user headers.
    TooBigUserHeaders = 4017 "too_big_user_headers",
    /// Too big message payload.
    TooBigMessagePayload = 4022 "too_big_message_payload",
    /// Too many messages.
    TooManyMessages = 4023 "too_many_messages",
    /// Empty message payload.
    EmptyMessagePayload = 4024 "empty_message_payload",
    /// Invalid message checksum.
    InvalidMessageChecksum = 4027 "invalid_message_checksum",
    /// Invalid messages size.
    InvalidMessagesSize = 4036 "invalid_messages_size",
    /// Invalid message timestamp delta.
    InvalidMessageTimestampDelta = 4038 "invalid_message_timestamp_delta",
    /// Invalid batch checksum.
    InvalidBatchChecksum = 4039 "invalid_batch_checksum",
    /// Invalid header kind.
    InvalidHeaderKind = 4040 "invalid_header_kind",
    /// Key not in the catalog, or not updatable.
    UnsupportedOptionKey = 4041 "unsupported_option_key",
    /// Invalid option value.
    InvalidOptionValue = 4042 "invalid_option_value",
    /// Options block too large.
    OptionsBlockTooLarge = 4043 "options_block_too_large",
    /// Offset beyond the log.
    InvalidOffset = 4100 "invalid_offset",
    /// Invalid reserved field.
    InvalidReservedField = 4101 "invalid_reserved_field",
    /// Segment size mismatch at open.
    SegmentSizeMismatchAtOpen = 4102 "segment_size_mismatch_at_open",
    /// Consumer group id not found.
    ConsumerGroupIdNotFound = 5000 "consumer_group_id_not_found",
    /// Invalid consumer group id.
    InvalidConsumerGroupId = 5002 "invalid_consumer_group_id",
    /// Consumer group name not found.
    ConsumerGroupNameNotFound = 5003 "consumer_group_name_not_found",
    /// Consumer group name already exists.
    ConsumerGroupNameAlreadyExists = 5004 "consumer_group_name_already_exists",
    /// Invalid consumer group name.
    InvalidConsumerGroupName = 5005 "invalid_consumer_group_name",
    /// Consumer group member not found.
    ConsumerGroupMemberNotFound = 5006 "consumer_group_member_not_found",
    /// Consumer group partition not owned.
    ConsumerGroupPartitionNotOwned = 5009 "consumer_group_partition_not_owned",
    /// Invalid connection string.
    InvalidConnectionString = 8000 "invalid_connection_string",
    /// Snapshot file completion failed.
    SnapshotFileCompletionFailed = 9000 "snapshot_file_completion_failed",
    /// Cannot sync file.
    CannotSyncFile = 10009 "cannot_sync_file",
    /// Timestamp out of range.
    TimestampOutOfRange = 10013 "timestamp_out_of_range",
    /// Shard not found.
    ShardNotFound = 11000 "shard_not_found",
    /// Shard communication error.
    ShardCommunicationError = 11001 "shard_communication_error",
    /// Cannot bind to socket.
    CannotBindToSocket = 12000 "cannot_bind_to_socket",
    /// Task timeout.
    TaskTimeout = 12001 "task_timeout",
    /// Io error.
    IoError = 13000 "io_error",
    /// Already authenticated.
    AlreadyAuthenticated = 14000 "already_authenticated",
    /// Invalid session.
    InvalidSession = 14001 "invalid_session",
    /// Incompatible protocol version.
    IncompatibleProtocolVersion = 14003 "incompatible_protocol_version",
}

impl ErrorCode {
    /// The error of a number; `None` when it has no name here.
    #[must_use]
    pub fn from_u32(code: u32) -> Option<Self> {
        Self::position(code)
            .and_then(|index| TABLE.get(index))
            .map(|(code, _)| *code)
    }

    /// The number that travels.
    #[must_use]
    pub const fn as_u32(self) -> u32 {
        self as u32
    }

    /// The name in snake case, as the HTTP interface shows it.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::position(self.as_u32())
            .and_then(|index| TABLE.get(index))
            .map_or("", |row| row.1)
    }

    /// Every error in numeric order.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|(code, _)| *code)
    }

    fn position(code: u32) -> Option<usize> {
        TABLE
            .binary_search_by_key(&code, |(known, _)| known.as_u32())
            .ok()
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.as_u32())
    }
}
