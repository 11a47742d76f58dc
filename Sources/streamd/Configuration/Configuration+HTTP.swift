extension Configuration {
  /// `[http]` without the settings for all streams, which are copied into each stream.
  struct Upstreams: Sendable, Equatable {
    /// Concurrent transfers to one host and port, or to one Unix socket; 1 to 1024.
    var maxPerHost = 4
  }

  /// A source that fetches a URL.
  struct HTTP: Sendable, Equatable {
    /// `http` or `https`, ASCII, with a host, without a user or password.
    var url: String
    var fetching: Fetching
    /// The time limit of one whole transfer; for a streaming response, of its head.
    var timeout = Duration.seconds(30)
    /// Maximum bytes of one response, or of one event of a streaming response, after decompression; more is a failed
    /// fetch. `nil`: see `Configuration.Stream.maxBodyBytes(_:)`.
    var maxBodyBytes: Int?
    /// The event made of a server-sent event; only for streaming responses with these.
    var eventForm = EventForm.data
    /// In the order of the file.
    var headers: [Header] = []
    /// Added to the URL's query.
    var query: [QueryItem] = []
    /// The `Authorization` header; `headers` then contains none.
    var authorization: Authorization?
    /// Path of the upstream's Unix socket, absolute, at most 107 bytes; `nil`: TCP.
    var unixSocket: String?
    var settings = HTTPSettings()

    /// How a response is read.
    enum Fetching: Sendable, Equatable {
      /// As one event; polled at intervals of 1 ms to 365 days.
      case poll(every: Duration)
      /// As many events, without end. Fails after `idleTimeout` without a byte; `nil`: no limit.
      case stream(Format, idleTimeout: Duration?)
    }

    /// The event made of a server-sent event: its data, or a JSON object with its name, its id and its data. The raw
    /// value is also that of `ServerSentEventForm`.
    enum EventForm: String, CaseIterable, Sendable {
      case data, envelope
    }

    /// How a streaming response is split into events.
    enum Format: String, CaseIterable, Sendable {
      case lines, sse
    }
  }

  /// The credentials for an upstream.
  enum Authorization: Sendable, Equatable {
    /// A token.
    case bearer(Secret)
    case basic(Login)
  }

  /// A user, without a colon and control characters, and its password.
  struct Login: Sendable, Equatable {
    var user: String
    var password: Secret
  }

  /// A name and a value of a URL's query, unencoded.
  struct QueryItem: Sendable, Equatable {
    /// 1 to 256 bytes without control characters.
    var name: String
    /// At most 8192 bytes without control characters.
    var value: Header.Value
  }

  /// A request header.
  struct Header: Sendable, Equatable {
    /// A token (RFC 9110).
    var name: String
    /// Without control characters.
    var value: Value

    /// The value of a header, parameter or variable.
    enum Value: Sendable, Equatable {
      case plain(String)
      case secret(Secret)
    }
  }

  /// The User-Agent, proxy, TLS trust and redirects of transfers. `[http]` sets the defaults for the streams' own
  /// settings.
  struct HTTPSettings: Sendable, Equatable {
    /// 1 to 256 bytes without control characters; `nil`: the daemon's name and version.
    var userAgent: String?
    var proxy = Proxy.environment
    /// Path of a PEM file with the only trusted authorities; `nil`: the system's.
    var authorities: String?
    /// `nil`: no client certificate is sent.
    var identity: Identity?
    var redirects = Redirects.sameOrigin
  }

  /// Where redirects may lead; the raw value is also that of `HTTPRedirects`.
  enum Redirects: String, CaseIterable, Sendable {
    case none
    case sameOrigin = "same-origin"
    case https, any
  }

  /// The proxy to use.
  enum Proxy: Sendable, Equatable {
    /// As in http_proxy, https_proxy, all_proxy and no_proxy.
    case environment
    case none
    /// A URL of scheme `http`, `https`, `socks5` or `socks5h`, without user, password and path.
    case server(String, Login?)
  }

  /// A client certificate.
  struct Identity: Sendable, Equatable {
    /// Path of a PEM file.
    var certificate: String
    /// Path of a PEM file; may be the same.
    var key: String
    /// The passphrase of the key.
    var passphrase: Secret?
  }
}
