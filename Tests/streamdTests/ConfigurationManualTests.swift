import Testing

@testable import streamd

/// streamd.toml(5), compared with the declarations of the keys. `Tests/InstallTests/documents.py` compares the names.
struct ConfigurationManualTests {
  /// The defaults in the manual, such as `"5m"` of `server.max_lifetime`, in TOML.
  private func manual() throws -> [String: String] {
    let root = #filePath.split(separator: "/").dropLast(3).reduce("") { "\($0)/\($1)" }
    let page = try readFile(at: root + "/docs/man/streamd.toml.5", limit: 1 << 20)
    var (table, defaults) = ("", [String: String]())
    for line in String(decoding: page, as: UTF8.self).split(separator: "\n") {
      let words = line.split(separator: " ", maxSplits: 5).map(String.init)
      if words[0] == ".Ss" {
        let name = words[1].split { "[]".contains($0) }.joined()
        table = words[1].hasPrefix("[") && name != "streams.NAME" ? name + "." : ""
      } else if words.starts(with: [".It", "Ic"]), words.count > 4, words[3] == "=" {
        defaults[table + words[2]] = words[4] == "Qq" ? "\"\(words.count > 5 ? words[5] : "")\"" : words[4]
      }
    }
    return defaults
  }

  private func linger(_ text: String) -> Duration? {
    try? parse("[streams.s]\ntimer.every = \"1s\"\nlinger = \(text)").streams.first?.linger
  }

  @Test func theManualHasTheDeclaredDefaults() throws {
    let manual = try manual()
    let defaults = ConfigurationPlaces.streamDefaults + ConfigurationPlaces.templateDefaults
    var declared = defaults.map { ($0.keys.joined(separator: "."), $0.text) }
    for table in ["server", "log", "http", "cluster"] {
      declared += ConfigurationPlaces.defaults(of: table).map { ("\(table).\($0.key)", $0.value) }
    }
    #expect(declared.count > 30)
    for (key, text) in declared where key != "http.redirects" {  // in the manual as a key of a stream
      let found = try #require(manual[key], "\(key) has no default in the manual")
      // A duration may have another unit.
      #expect(found == text || linger(text) != nil && linger(found) == linger(text), "\(key)")
    }
  }
}
