import Glibc

/// A configuration and its text.
struct ConfigurationSource: Sendable {
  let configuration: Configuration
  /// At most `textLimit` bytes. Contains no secrets, only the names of credentials.
  let text: [UInt8]

  static let textLimit = 1 << 20

  /// Reads the file at `path` and everything to which it refers: users, groups and credentials.
  ///
  /// - Parameters:
  ///   - credentialsDirectory: the directory for `{ credential = "name" }`; by default the unit's own.
  ///   - checksPrograms: whether a program that cannot be run is an error; otherwise its stream fails when it is
  ///     started.
  /// - Throws: every error of the file, or the one that prevents reading it; if there is none, that the buffers are
  ///   larger than `MemoryBudget` allows.
  static func load(
    path: String,
    credentialsDirectory: String? = unsafe getenv("CREDENTIALS_DIRECTORY").map { unsafe String(cString: $0) },
    checksPrograms: Bool = false
  ) throws(ConfigurationErrors) -> ConfigurationSource {
    let text: [UInt8]
    do {
      text = try readFile(at: path, limit: textLimit)
    } catch {
      throw ConfigurationErrors(file: path, [.init(text: "cannot be read: \(error.reason)")])
    }
    let source = try parse(
      text, file: path, credentialsDirectory: credentialsDirectory, checksPrograms: checksPrograms)
    if case .refused(let sentence) = MemoryBudget.ofThisProcess().verdict(on: source.configuration) {
      throw ConfigurationErrors(file: path, [.init(key: "streams", text: sentence)])
    }
    return source
  }

  /// Parses a text that was already read.
  ///
  /// - Parameter file: the file's name in error messages.
  static func parse(
    _ text: [UInt8], file: String,
    credentialsDirectory: String? = unsafe getenv("CREDENTIALS_DIRECTORY").map { unsafe String(cString: $0) },
    checksPrograms: Bool = false
  ) throws(ConfigurationErrors) -> ConfigurationSource {
    let configuration = try Configuration.parse(
      text, file: file, credentialsDirectory: credentialsDirectory, checksPrograms: checksPrograms)
    return ConfigurationSource(configuration: configuration, text: text)
  }
}

extension Configuration {
  /// Parses `text` as the content of `file`, which error messages name.
  ///
  /// - Throws: the first error in TOML's grammar, else all errors in the content.
  static func parse(
    _ text: [UInt8], file: String, credentialsDirectory: String?, checksPrograms: Bool = false
  ) throws(ConfigurationErrors) -> Configuration {
    let root: ConfigurationNode
    do {
      root = try ConfigurationNode.parse(text)
    } catch {
      throw ConfigurationErrors(file: file, [error])
    }
    let reader = ConfigurationReader(
      credentials: CredentialFolder(path: credentialsDirectory), checksPrograms: checksPrograms)
    let configuration = reader.configuration(root)
    guard let configuration, reader.collector.errors.isEmpty else {
      throw ConfigurationErrors(file: file, reader.collector.errors)
    }
    return configuration
  }
}

/// Converts the tables of the file to values. After an error it uses the default and continues.
struct ConfigurationReader {
  let credentials: CredentialFolder
  let checksPrograms: Bool
  let collector = ConfigurationErrorCollector()
  /// The settings of streams with an HTTP source, unless they override them.
  var standardSettings = Configuration.HTTPSettings()

  /// - Parameter root: a table.
  func configuration(_ root: ConfigurationNode) -> Configuration? {
    guard let table = ConfigurationTable(root, path: "", collector: collector) else { return nil }
    var configuration = Configuration()
    configuration.server = table.table("server", server) ?? configuration.server
    configuration.log = table.table("log", log) ?? configuration.log
    var reader = self
    if let (upstreams, settings) = table.table("http", upstreams) {
      configuration.http = upstreams
      reader.standardSettings = settings
    }
    configuration.streams = table.table("streams", reader.streams) ?? []
    table.refuseUnknownKeys()
    return configuration
  }

  private func server(_ table: ConfigurationTable) -> Configuration.Server {
    let standard = Configuration.Server()
    return Configuration.Server(
      socket: table.value("socket", .socketPath, default: standard.socket),
      mode: table.value("mode", .mode, default: standard.mode),
      workers: table.value("workers", .count(0...1024), default: standard.workers),
      maxConnections: table.value("max_connections", .count(1...1_048_576), default: standard.maxConnections),
      maxConnectionsPerUser: table.value("max_connections_per_user", .count(1...1_048_576)),
      maxRequestsPerConnection: table.value(
        "max_requests_per_connection", .count(1...1_048_576), default: standard.maxRequestsPerConnection),
      maxRequestsPerUser: table.value(
        "max_requests_per_user", .count(1...1 << 30), default: standard.maxRequestsPerUser),
      maxRequestBytes: table.value("max_request", .size(1024...(16 << 20) - 1), default: standard.maxRequestBytes),
      maxInputBytes: table.value("max_input", .size(1 << 20...1 << 40), default: standard.maxInputBytes),
      maxInputBytesPerUser: table.value(
        "max_input_per_user", .size(1 << 20...1 << 40), default: standard.maxInputBytesPerUser),
      maxLifetime: table.value("max_lifetime", .duration(), default: standard.maxLifetime),
      handshakeTimeout: table.value("handshake_timeout", .duration(), default: standard.handshakeTimeout),
      hosts: table.values("hosts", .hostName) ?? standard.hosts,
      origins: table.values("origins", .origin) ?? standard.origins,
      memory: table.value("memory", .size(1 << 20...1 << 50)),
      state: table.value("state", .folderPath))
  }

  private func log(_ table: ConfigurationTable) -> Configuration.Log {
    Configuration.Log(level: table.value("level", .choice, default: Configuration.Log().level))
  }

  private func streams(_ table: ConfigurationTable) -> [Configuration.Stream] {
    table.keys.compactMap { name in
      if !isStreamName(name) {
        table.addError("expected a name of letters, digits, \".\", \"_\", \"-\" and \"/\", at most 255 bytes", at: name)
      } else if name.split(separator: "/", omittingEmptySubsequences: false).contains(where: { $0 == "." || $0 == ".." }
      ) {
        table.addError("expected a name without the segments \".\" and \"..\", which no URL can have", at: name)
      }
      return table.table(name) { stream(named: name, $0) }
    }
  }

  private func isStreamName(_ name: String) -> Bool {
    (1...255).contains(name.utf8.count)
      && name.unicodeScalars.allSatisfy {
        $0.isASCII && ($0.properties.isAlphabetic || "0123456789._-/".unicodeScalars.contains($0))
      }
  }
}
