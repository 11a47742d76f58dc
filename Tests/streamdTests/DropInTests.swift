import Glibc
import TestSupport
import Testing

@testable import streamd

/// The files `NAME.d/*.toml` beside `NAME.toml`.
struct DropInTests {
  private let folder: TemporaryFolder
  private var main: String { folder.path + "/test.toml" }

  init() throws { folder = try TemporaryFolder() }

  private func write(_ text: String, to name: String) throws {
    let file = try #require(fopen(folder.path + "/" + name, "w"))
    fputs(text, file)
    fclose(file)
  }

  /// - Parameter dropIns: names and contents.
  private func load(
    _ text: String, _ dropIns: [String: String], credentials: [String: String] = [:]
  ) throws -> ConfigurationSource {
    try write(text, to: "test.toml")
    mkdir(folder.path + "/test.d", 0o700)
    for (name, text) in dropIns { try write(text, to: "test.d/" + name) }
    for (name, text) in credentials { try write(text, to: name) }
    return try ConfigurationSource.load(
      path: main, credentialsDirectory: credentials.isEmpty ? nil : folder.path)
  }

  private func errors(_ text: String, _ dropIns: [String: String]) throws -> [String] {
    do {
      _ = try load(text, dropIns)
      return []
    } catch let error as ConfigurationErrors {
      return error.sentences.map { $0.hasPrefix(folder.path) ? String($0.dropFirst(folder.path.count + 1)) : $0 }
    }
  }

  @Test func dropInsAddStreamsInTheOrderOfTheirNames() throws {
    let source = try load(
      "[http]\nuser_agent = \"me\"\n[streams.z]\npublish = true\n",
      [
        "20.toml": "[streams.b]\npublish = true",
        "10.toml": "streams.c.publish = true",
        "30.toml": "[streams.a]\nhttp = { url = \"http://localhost/\", every = \"1s\" }",
        ".hidden.toml": "x", "notes.txt": "x",
      ])
    #expect(source.configuration.streams.map(\.name) == ["z", "c", "b", "a"])
    guard let http = source.configuration.streams.last?.source.section as? Configuration.HTTP else {
      Issue.record("not an HTTP source")
      return
    }
    #expect(http.settings.userAgent == "me")
    #expect(source.files.map(\.path) == [main] + ["10", "20", "30"].map { "\(folder.path)/test.d/\($0).toml" })
  }

  @Test func dropInsAddTokensHostsAndOrigins() throws {
    let source = try load(
      "[server]\nhosts = [\"a.example\"]\nmax_connections = 7\n",
      [
        "1.toml": "[server]\nhosts = [\"b.example\"]\norigins = [\"https://c.example\"]\n[streams.a]\npublish = true",
        "2.toml": "[[tokens]]\nname = \"t\"\ncredential = \"t\"\nread = [\"a\"]",
      ], credentials: ["t": "0123456789abcdef"])
    let configuration = source.configuration
    #expect(configuration.server.limits.httpHosts == ["a.example", "b.example"])
    #expect(configuration.server.limits.httpOrigins == ["https://c.example"])
    #expect(configuration.server.limits.connections == 7)
    #expect(configuration.tokens.map(\.name) == ["t"] && configuration.streams[0].readers == ["t"])
    #expect(source.text.contains("\n[server]\nhosts = [\"b.example\"]\n"))
    #expect(source.text.contains("\n[[tokens]]\nname = \"t\"\n"))
  }

  @Test func whatBelongsInTheMainFileIsNamed() throws {
    let sentences = try errors(
      "", ["1.toml": "[server]\nmemory = \"1GiB\"\nhost = []\n[log]\nlevel = \"debug\"\n[http]\nmax_per_host = 1\n"])
    #expect(sentences.count == 4)
    let starts =
      ["2: server.memory: belongs in \(main)", "3: server.host: unknown key; did you mean \"hosts\"?"]
      + ["4: log: belongs in \(main)", "6: http: belongs in \(main)"]
    for start in starts { #expect(sentences.contains { $0.hasPrefix("test.d/1.toml:\(start)") }, "\(sentences)") }
  }

  @Test func mistakesNameTheFileAndTheLine() throws {
    let sentences = try errors(
      "[streams.z]\npublish = 1\n[streams.y]\npublish = true\n",
      [
        "1.toml": "\n[streams.y]\npublish = true", "2.toml": "[server]\nworkers = 1", "3.toml": "[streams.a\n",
        "4.toml": "[streams.b]\npublish = true\nreplay = \"x\"",
      ])
    #expect(sentences.count == 5)
    for (sentence, start) in zip(
      sentences,
      [
        "test.toml:2: streams.z.publish: ", "test.d/1.toml:2: streams.y: is in \(main), too",
        "test.d/2.toml:2: server.workers: belongs in \(main): ", "test.d/3.toml:",
        "test.d/4.toml:3: streams.b.replay: ",
      ])
    {
      #expect(sentence.hasPrefix(start), "\(sentence) begins with \(start)")
    }
  }

  @Test func whatCannotBeReadIsNamed() throws {
    try write("", to: "test.toml")
    try write("", to: "test.d")
    let thrown = #expect(throws: ConfigurationErrors.self) { try ConfigurationSource.load(path: main) }
    #expect(try #require(thrown).sentences == ["\(folder.path)/test.d: cannot be read: Not a directory"])
    unlink(folder.path + "/test.d")
    mkdir(folder.path + "/test.d", 0o700)
    mkdir(folder.path + "/test.d/1.toml", 0o700)
    let other = #expect(throws: ConfigurationErrors.self) { try ConfigurationSource.load(path: main) }
    #expect(try #require(other).sentences == ["\(folder.path)/test.d/1.toml: cannot be read: Is a directory"])
  }

  @Test func theOtherFilesAreCheckedBesideOneThatCannotBeRead() throws {
    mkdir(folder.path + "/test.d", 0o700)
    mkdir(folder.path + "/test.d/1.toml", 0o700)
    symlink("none", folder.path + "/test.d/2.toml")
    let sentences = try errors(
      "[streams.z]\npublish = 1\n[streams.y]\nof = [\"none\"]",
      ["3.toml": "[streams.a]\npublish = true\nreplay = \"x\""])
    let starts = [
      "test.d/1.toml: cannot be read: Is a directory", "test.d/2.toml: cannot be read: No such file or directory",
      "test.toml:2: streams.z.publish: ", "test.d/3.toml:3: streams.a.replay: ",
    ]
    // One of the files that cannot be read may have the stream "none".
    #expect(zip(sentences, starts).allSatisfy { $0.hasPrefix($1) } && sentences.count == starts.count, "\(sentences)")
  }

  @Test func allFilesTogetherHaveALimit() throws {
    let large = String(repeating: "#", count: ConfigurationText.limit / 2)
    let sentences = try errors(large, ["1.toml": large])
    #expect(
      sentences == ["test.d/1.toml: cannot be read: all files together, with their paths, have more than 1 MiB"])
  }

  @Test func whatFitsTogetherCanBeStored() throws {
    let half = ConfigurationText.limit / 2
    let room = ConfigurationText.limit - half - 16 - 2 * main.utf8.count - "/1.toml".utf8.count
    let fitting = try load(String(repeating: "#", count: half), ["1.toml": String(repeating: "#", count: room)])
    #expect(fitting.files.stored.count <= 1 + ConfigurationText.limit)
    #expect(
      try errors(String(repeating: "#", count: half), ["1.toml": String(repeating: "#", count: room + 32)]).count == 1)
  }

  @Test func storedFilesAreReadBack() {
    let files = [
      ConfigurationText(path: "/a.toml", bytes: Array("x = 1".utf8)), ConfigurationText(path: "/a.d/é.toml", bytes: []),
      ConfigurationText(path: "/a.d/z.toml", bytes: Array("y = 2".utf8)),
    ]
    for count in 1...3 {
      let some = Array(files.prefix(count))
      #expect([ConfigurationText](stored: some.stored, path: "/a.toml") == some)
    }
  }

  @Test func damagedStoredFilesAreRefused() {
    let stored = [ConfigurationText(path: "/a", bytes: [1, 2, 3]), ConfigurationText(path: "/b", bytes: [4])].stored
    // Cut after a whole file, it is a shorter list.
    let whole = [1, 1 + 4 + 2 + 4 + 3]
    for count in 1..<stored.count where !whole.contains(count) {
      #expect([ConfigurationText](stored: Array(stored.prefix(count)), path: "/a") == nil)
    }
    #expect([ConfigurationText](stored: [0, 0xFF, 0xFF, 0xFF, 0xFF, 0], path: "/a") == nil)
  }
}
