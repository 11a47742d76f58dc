import Glibc
import StreamRuntime

/// A configuration and its files.
struct ConfigurationSource: Sendable {
  let configuration: Configuration
  let files: [ConfigurationText]
  /// As TOML without secrets.
  let text: String
  /// The names of the credentials that were not read, as this process has none.
  let unreadCredentials: [String]

  /// Reads the file at `path`, its drop-ins, and everything to which they refer: users, groups and credentials.
  ///
  /// - Parameters:
  ///   - credentialsDirectory: the directory for `{ credential = "name" }`; by default the unit's own.
  ///   - checksPrograms: whether a program that cannot be run is an error; otherwise its stream fails when it is
  ///     started.
  ///   - isTrial: nothing is served: the main file may be a pipe or `-`, standard input, and without a directory of
  ///     credentials everything else is checked.
  /// - Throws: every error of the files, or the one that prevents reading them; if there is none, that the buffers are
  ///   larger than `MemoryBudget` allows.
  static func load(
    path: String,
    credentialsDirectory: String? = unsafe getenv("CREDENTIALS_DIRECTORY").map { unsafe String(cString: $0) },
    checksPrograms: Bool = false, isTrial: Bool = false
  ) throws(ConfigurationErrors) -> ConfigurationSource {
    let source = try parse(
      ConfigurationText.files(at: path, waits: isTrial), credentialsDirectory: credentialsDirectory,
      checksPrograms: checksPrograms, isTrial: isTrial)
    if case .refused(let sentence) = MemoryBudget.ofThisProcess().verdict(on: source.configuration) {
      throw ConfigurationErrors(file: path, [.init(key: "streams", text: sentence)])
    }
    return source
  }

  /// Parses files that were already read: the main one, then drop-ins, which add streams.
  ///
  /// - Throws: of each file, the first error in TOML's grammar, else all errors in the content.
  static func parse(
    _ files: [ConfigurationText],
    credentialsDirectory: String? = unsafe getenv("CREDENTIALS_DIRECTORY").map { unsafe String(cString: $0) },
    checksPrograms: Bool = false, isTrial: Bool = false
  ) throws(ConfigurationErrors) -> ConfigurationSource {
    let unread = isTrial && credentialsDirectory == nil ? UnreadCredentials() : nil
    var reader = ConfigurationReader(
      credentials: CredentialFolder(path: credentialsDirectory), checksPrograms: checksPrograms, unread: unread)
    var configuration = Configuration()
    var listing = ConfigurationListing()
    var sentences: [String] = []
    // The file of each stream.
    var places: [String: String] = [:]
    for (index, file) in files.enumerated() {
      reader.collector = ConfigurationErrorCollector()
      do {
        let root = try ConfigurationNode.parse(file.bytes)
        let streams = index == 0 ? reader.read(root, into: &configuration) : reader.dropIn(root, besides: places)
        configuration.streams += streams
        for stream in streams { places[stream.name] = file.path }
        if sentences.isEmpty { listing.add(root, of: file.path, isMain: index == 0) }
      } catch {
        reader.collector.add(error)
      }
      let errors = reader.collector.errors
      if !errors.isEmpty { sentences += ConfigurationErrors(file: file.path, errors).sentences }
    }
    if !sentences.isEmpty { throw ConfigurationErrors(sentences: sentences) }
    for index in configuration.streams.indices { configuration.streams[index].admit(configuration.tokens) }
    listing.addStreamDefaults()
    return ConfigurationSource(
      configuration: configuration, files: files, text: listing.text, unreadCredentials: unread?.names.sorted() ?? [])
  }
}

/// Converts the tables of a file to values. After an error it uses the default and continues.
struct ConfigurationReader {
  let credentials: CredentialFolder
  var checksPrograms: Bool
  /// Collects the credentials instead of reading them; nil: they are read.
  var unread: UnreadCredentials?
  /// Whether secrets are read; if not, only their names are checked.
  var readsSecrets = true
  /// Whether the main file has `[cluster]`, with or without errors, or could not be read.
  var hasCluster = true
  var collector = ConfigurationErrorCollector()
  /// An address in `server.listen` that other machines reach; nil: none.
  var networkAddress: InternetAddress?
  /// The settings of streams with an HTTP source, unless they override them.
  var standardSettings = Configuration.HTTPSettings()

  /// Reads the main file.
  /// - Parameter root: a table.
  /// - Returns: its streams.
  mutating func read(_ root: ConfigurationNode, into configuration: inout Configuration) -> [Configuration.Stream] {
    guard let table = ConfigurationTable(root, path: "", collector: collector) else { return [] }
    configuration.server = table.table("server", server) ?? configuration.server
    networkAddress = configuration.server.listen.first { !$0.isLoopback }
    configuration.log = table.table("log", log) ?? configuration.log
    if let (upstreams, settings) = table.table("http", upstreams) {
      configuration.http = upstreams
      standardSettings = settings
    }
    configuration.cluster = table.table("cluster", cluster)
    hasCluster = table.holds("cluster")
    table.tables("tokens") { token in
      if let token = self.token(token, besides: configuration.tokens) { configuration.tokens.append(token) }
    }
    let streams = table.table("streams", streams) ?? []
    table.refuseUnknownKeys()
    return streams
  }

  /// Reads a drop-in, which has nothing but streams.
  /// - Parameter others: the file of each stream of the files before it.
  func dropIn(_ root: ConfigurationNode, besides others: [String: String]) -> [Configuration.Stream] {
    guard let table = ConfigurationTable(root, path: "", collector: collector) else { return [] }
    let streams = table.table("streams") { table in
      for name in table.keys { if let other = others[name] { table.addError("is in \(other), too", at: name) } }
      return self.streams(table)
    }
    table.refuseUnknownKeys()
    return streams ?? []
  }

  private func server(_ table: ConfigurationTable) -> Configuration.Server {
    let standard = Configuration.Server()
    return Configuration.Server(
      socket: table.value("socket", .socketPath, default: standard.socket),
      mode: table.value("mode", .mode, default: standard.mode),
      listen: listen(table),
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

  private func listen(_ table: ConfigurationTable) -> [InternetAddress] {
    let addresses = table.values("listen", .internetAddress) ?? []
    if addresses.count > 8 { table.addError("expected at most 8 addresses, got \(addresses.count)", at: "listen") }
    if let twice = addresses.first(where: { address in addresses.count { $0 == address } > 1 }) {
      table.addError("expected each address once, got \"\(twice)\" twice", at: "listen")
    }
    if let address = addresses.first(where: { !$0.isLoopback }), !table.holds("hosts") {
      table.addError(
        "expected hosts, the names of this server, with \"\(address)\", which other machines reach", at: "listen",
        lacking: ["hosts"])
    }
    return addresses
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
