import Glibc
import StreamRuntime

/// A configuration and its files.
struct ConfigurationSource: Sendable {
  let configuration: Configuration
  let files: [ConfigurationText]
  /// The configuration as TOML without secrets, see `ConfigurationListing`.
  let text: String
  /// The names of the credentials that were not read, because this process has no directory of credentials.
  let unreadCredentials: [String]

  /// Reads the file at `path`, its drop-ins, and everything to which they refer: users, groups and credentials.
  ///
  /// - Parameters:
  ///   - credentialsDirectory: the directory for `{ credential = "name" }`; by default the unit's own.
  ///   - checksPrograms: whether a program that cannot be run is an error; otherwise its stream fails when it is
  ///     started.
  ///   - isTrial: whether nothing will be served. The main file may then be a pipe or `-`, standard input. Without a
  ///     directory of credentials, everything else is checked.
  /// - Throws: every error of the files, or the error that prevents reading them. Without any, the error that the
  ///   buffers are larger than `MemoryBudget` allows.
  static func load(
    path: String,
    credentialsDirectory: String? = unsafe getenv("CREDENTIALS_DIRECTORY").map { unsafe String(cString: $0) },
    checksPrograms: Bool = false, isTrial: Bool = false
  ) throws(ConfigurationErrors) -> ConfigurationSource {
    let files = try ConfigurationText.files(at: path, waits: isTrial)
    let source = try parse(
      files.read, unreadable: files.errors, credentialsDirectory: credentialsDirectory, checksPrograms: checksPrograms,
      isTrial: isTrial)
    if case .refused(let sentence) = MemoryBudget.ofThisProcess().verdict(on: source.configuration) {
      throw source.errors(at: source.configuration.server.memory == nil ? ["streams"] : ["server", "memory"], sentence)
    }
    return source
  }

  /// Parses files that were already read: the main one, then drop-ins, which add streams, tokens, hosts and origins.
  ///
  /// - Parameters:
  ///   - unreadable: the errors of further drop-ins that cannot be read.
  ///   - kinds: the kinds of sources.
  /// - Throws: these errors, and for each file, the first error in TOML's grammar, or else all errors in the content.
  static func parse(
    _ files: [ConfigurationText], unreadable: [String] = [],
    credentialsDirectory: String? = unsafe getenv("CREDENTIALS_DIRECTORY").map { unsafe String(cString: $0) },
    checksPrograms: Bool = false, isTrial: Bool = false, kinds: [any SourceSection.Type] = SourceKind.all
  ) throws(ConfigurationErrors) -> ConfigurationSource {
    let unread = isTrial && credentialsDirectory == nil ? UnreadCredentials() : nil
    var context = ConfigurationContext(
      credentials: CredentialFolder(path: credentialsDirectory), checksPrograms: checksPrograms, unread: unread)
    context.kinds = kinds
    var configuration = Configuration()
    var listing = ConfigurationListing()
    var sentences = unreadable
    var roots: [(file: String, root: ConfigurationNode)] = []
    // The file of each stream and template.
    var places: [String: String] = [:]
    for (index, file) in files.enumerated() {
      context.collector = ConfigurationErrorCollector()
      do {
        let root = try ConfigurationNode.parse(file.bytes)
        roots.append((file.path, root))
        guard let table = ConfigurationTable(root, context) else { continue }
        let streams =
          index == 0
          ? table.main(file.path, into: &configuration)
          : table.dropIn(file.path, into: &configuration, besides: places, main: files[0].path)
        context = table.context
        for name in streams { places[name] = file.path }
        if sentences.isEmpty { listing.add(root, of: file.path, isMain: index == 0) }
      } catch {
        context.collector.add(error)
      }
      let errors = context.collector.errors
      if !errors.isEmpty { sentences += ConfigurationErrors(file: file.path, errors).sentences }
    }
    // A file that cannot be read or parsed may have the streams that seem to be missing.
    if unreadable.isEmpty, roots.count == files.count { sentences += streamErrors(in: configuration, roots) }
    if !sentences.isEmpty { throw ConfigurationErrors(sentences: sentences) }
    for index in configuration.streams.indices { configuration.streams[index].admit(configuration.tokens) }
    for index in configuration.templates.indices { configuration.templates[index].admit(configuration.tokens) }
    listing.addStreamDefaults(withTemplates: !configuration.templates.isEmpty)
    return ConfigurationSource(
      configuration: configuration, files: files, text: listing.text, unreadCredentials: unread?.names.sorted() ?? [])
  }
}

extension ConfigurationSource {
  /// - Parameter roots: the content of each file.
  /// - Returns: a sentence for each error.
  private static func streamErrors(
    in configuration: Configuration, _ roots: [(file: String, root: ConfigurationNode)]
  ) -> [String] {
    let names = Set(roots.flatMap { $0.root.streamNames })
    let errors = configuration.baseErrors(among: names).map { ($0.stream, ["of"], $0.text) }
    let shared = configuration.templates.sharedNames.map { ($0.template, [String](), $0.text) }
    return (shared + errors + configuration.streams.placeErrors).flatMap { name, keys, text in
      Self.errors(at: ["streams", name] + keys, text, in: roots).sentences
    }
  }

  /// An error at a key, which the content of one file does not show.
  func errors(at keys: [String], _ text: String) -> ConfigurationErrors {
    let roots = files.compactMap { file in (try? ConfigurationNode.parse(file.bytes)).map { (file.path, $0) } }
    return Self.errors(at: keys, text, in: roots)
  }

  private static func errors(
    at keys: [String], _ text: String, in roots: [(file: String, root: ConfigurationNode)]
  ) -> ConfigurationErrors {
    let place = roots.lazy.compactMap { file, root in root.node(at: keys).map { (file: file, line: $0.line) } }.first
    let key = keys.map { isBareKey($0) ? $0 : ConfigurationNode.shown($0) }.joined(separator: ".")
    let error = ConfigurationError(line: place?.line ?? 0, key: key, text: text)
    return ConfigurationErrors(file: place?.file ?? roots.first?.file ?? "", [error])
  }
}

extension ConfigurationTable {
  /// Reads the main file.
  /// - Returns: the names of its streams and templates.
  func main(_ file: String, into configuration: inout Configuration) -> [String] {
    configuration.server = section("server", configuration.server) ?? configuration.server
    context.server = configuration.server
    context.networkAddress = configuration.server.listen.first { !$0.isLoopback }
    configuration.log = section("log", configuration.log) ?? configuration.log
    configuration.http = section("http", configuration.http) ?? configuration.http
    context.standardSettings = configuration.http.settings
    configuration.cluster = section("cluster", Configuration.Cluster())
    context.hasCluster = holds("cluster")
    readTokens(into: &configuration)
    let names = table("streams") { $0.readStreams(of: file, into: &configuration) } ?? []
    refuseUnknownKeys()
    return names
  }

  private func readTokens(into configuration: inout Configuration) {
    tables("tokens") { token in
      if let token = Configuration.Token(token, besides: configuration.tokens) { configuration.tokens.append(token) }
    }
  }

  /// Reads a drop-in, which adds streams, tokens, and hosts and origins of the server.
  ///
  /// - Parameters:
  ///   - others: the file of each stream and template in the files before this one.
  ///   - main: the file with everything else.
  /// - Returns: the names of its streams and templates.
  fileprivate func dropIn(
    _ file: String, into configuration: inout Configuration, besides others: [String: String], main: String
  ) -> [String] {
    for key in ["cluster", "http", "log"] where holds(key) {
      addError("belongs in \(main): a drop-in adds streams, tokens, server.hosts and server.origins", at: key)
    }
    _ = table("server") { table in
      configuration.server.addNames(of: table)
      for key in ConfigurationPlaces.keys(of: "server") where table.hasUnread(key) {
        table.addError("belongs in \(main): a drop-in adds to server.hosts and server.origins only", at: key)
      }
    }
    readTokens(into: &configuration)
    let names = table("streams") { table in
      for name in table.keys { if let other = others[name] { table.addError("is in \(other), too", at: name) } }
      return table.readStreams(of: file, into: &configuration)
    }
    refuseUnknownKeys()
    return names ?? []
  }

  /// - Returns: the names of the streams and templates without errors.
  private func readStreams(of file: String, into configuration: inout Configuration) -> [String] {
    var names: [String] = []
    for name in keys {
      if name.contains("{") {
        guard let template = template(name, of: file) else { continue }
        configuration.templates.append(template)
      } else {
        guard let stream = stream(name) else { continue }
        configuration.streams.append(stream)
      }
      names.append(name)
    }
    return names
  }

  private func stream(_ name: String) -> Configuration.Stream? {
    let segments = name.split(separator: "/", omittingEmptySubsequences: false)
    if !name.isName(upTo: 255, with: "._-/") {
      addError("expected a name of letters, digits, \".\", \"_\", \"-\" and \"/\", at most 255 bytes", at: name)
    } else if segments.contains(where: { $0 == "." || $0 == ".." }) {
      addError("expected a name without the segments \".\" and \"..\", which no URL can have", at: name)
    }
    return section(name, Configuration.Stream(name: name)) {
      "write a stream named \(name).\($0) as [streams.\"\(name).\($0)\"]"
    }
  }
}
