extension Configuration {
  /// `[http]`, but for the settings that it gives to all streams, which have them by now.
  struct Upstreams: Sendable, Equatable {
    /// Transfers at a time to one host and port, or to one Unix socket; 1 to 1024.
    var maxPerHost = 4
  }

  /// A source that fetches a URL.
  struct HTTP: Sendable, Equatable {
    /// `http` or `https`, ASCII, with a host, without a user or password.
    var url: String
    var fetching: Fetching
    /// For one whole transfer; of a response without end, for its head.
    var timeout = Duration.seconds(30)
    /// Bytes of one response, or of one event of a response without end, after decompression; more than that is a failed
    /// fetch. `nil`: as `Configuration.Stream.maxBodyBytes(_:)` says.
    var maxBodyBytes: Int?
    /// What a server-sent event becomes; only for such a response.
    var eventForm = EventForm.data
    /// By name.
    var headers: [Header] = []
    /// Added to the URL's query.
    var query: [QueryItem] = []
    /// What is sent as `Authorization`; then no header is named so.
    var authorization: Authorization?
    /// Path of the Unix socket that the upstream listens on, absolute, at most 107 bytes; `nil`: TCP.
    var unixSocket: String?
    var settings = HTTPSettings()

    /// What a response is.
    enum Fetching: Sendable, Equatable {
      /// An event; asked for again and again, 1 ms to 365 days apart.
      case poll(every: Duration)
      /// Many events, and without end. One that brings nothing for `idleTimeout` has failed; `nil`: it may be quiet.
      case stream(Format, idleTimeout: Duration?)
    }

    /// What a server-sent event becomes: its data, or a JSON object with its name, its id and its data. The raw value is
    /// that of `ServerSentEventForm`, too.
    enum EventForm: String, CaseIterable, Sendable {
      case data, envelope
    }

    /// How a response without end is cut into events.
    enum Format: String, CaseIterable, Sendable {
      case lines, sse
    }
  }

  /// Who the daemon is to an upstream.
  enum Authorization: Sendable, Equatable {
    /// A token.
    case bearer(Secret)
    case basic(Login)
  }

  /// A name, without a colon and control characters, and its password.
  struct Login: Sendable, Equatable {
    var user: String
    var password: Secret
  }

  /// A name and a value of a URL's query, not encoded.
  struct QueryItem: Sendable, Equatable {
    /// 1 to 256 bytes without control characters.
    var name: String
    /// At most 8192 bytes without control characters.
    var value: Header.Value
  }

  /// One header of a request.
  struct Header: Sendable, Equatable {
    /// A token of RFC 9110.
    var name: String
    /// No control characters.
    var value: Value

    /// What follows the colon.
    enum Value: Sendable, Equatable {
      case plain(String)
      case secret(Secret)
    }
  }

  /// How transfers present themselves, which way they take, whom they trust, and where redirects lead. What a stream does not say of it, `[http]`
  /// says for all of them.
  struct HTTPSettings: Sendable, Equatable {
    /// 1 to 256 bytes without control characters; `nil`: the daemon's name and version.
    var userAgent: String?
    var proxy = Proxy.environment
    /// Path of a file with the certificates of authorities that are trusted, in PEM; `nil`: the system's.
    var authorities: String?
    /// `nil`: none is shown.
    var identity: Identity?
    var redirects = Redirects.sameOrigin
  }

  /// Where redirects may lead; the raw value is that of `HTTPRedirects`, too.
  enum Redirects: String, CaseIterable, Sendable {
    case none
    case sameOrigin = "same-origin"
    case https, any
  }

  /// Whether a proxy is between.
  enum Proxy: Sendable, Equatable {
    /// As http_proxy, https_proxy, all_proxy and no_proxy say.
    case environment
    case none
    /// At a URL of scheme `http`, `https`, `socks5` or `socks5h`, without user, password and path.
    case server(String, Login?)
  }

  /// A client certificate.
  struct Identity: Sendable, Equatable {
    /// Path of a file in PEM.
    var certificate: String
    /// Path of a file in PEM; may be the same.
    var key: String
    /// What the key is encrypted with.
    var passphrase: Secret?
  }
}
