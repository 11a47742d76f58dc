import FoundationEssentials
import Glibc
import Testing

@testable import streamd

/// The folder of the package, found from where this file was compiled.
private let root = #filePath.split(separator: "/").dropLast(3).reduce("") { "\($0)/\($1)" }

/// What comes with the project: it must be right, and what is made of it by chance must do no harm.
struct ConfigurationFileTests {
  @Test func theDefaultFileHasAClock() throws {
    let configuration = try ConfigurationSource.load(path: "\(root)/config/streamd.toml", credentialsDirectory: nil)
      .configuration
    #expect(configuration.server == Configuration.Server())
    var clock = Configuration.Stream(name: "clock", source: .timer(.init(every: .seconds(1))))
    clock.description = "Once a second"
    clock.replay = 10
    #expect(configuration.streams == [clock])
  }

  @Test func theExamplesInItsCommentsAreValid() throws {
    let text = String(decoding: try readFile(at: "\(root)/config/streamd.toml", limit: 1 << 20), as: UTF8.self)
    let lines = text.split(separator: "\n")
    let example = lines.drop { !$0.hasPrefix("# [") }.map { $0.dropFirst(2) }
    let configuration = try parse(example.joined(separator: "\n"))
    #expect(configuration.streams.map(\.name) == ["rates", "build"])
  }

  @Test func everyExampleIsValid() throws {
    let examples = try examples()
    #expect(examples.count >= 3)
    for path in examples {
      let configuration = try ConfigurationSource.load(path: path, credentialsDirectory: nil).configuration
      #expect(!configuration.streams.isEmpty)
    }
  }

  /// The daemons of a fleet have the same streams and the same fleet.
  @Test func theExampleOfAFleetIsValid() throws {
    let configurations = try (1...3).map { number in
      let path = "\(root)/config/examples/fleet/daemon-\(number).toml"
      let files = try ConfigurationText.files(at: path).read
      return try ConfigurationSource.parse(files, credentialsDirectory: nil).configuration
    }
    for configuration in configurations {
      #expect(configuration.cluster != nil && configuration.cluster == configurations[0].cluster)
      #expect(configuration.streams.map(\.definitionDigest) == configurations[0].streams.map(\.definitionDigest))
      #expect(configuration.streams.count >= 3 && configuration.streams.allSatisfy { $0.share == .fleet })
    }
    #expect(Set(configurations.map(\.server.socket)).count == 3)
    #expect(Set(configurations.map(\.server.state)).count == 3)
  }

  @Test func randomlyChangedFilesDoNotCrash() throws {
    let others = ["\(root)/config/streamd.toml", "\(root)/config/examples/fleet/daemon-3.toml"]
    let texts = try (try examples() + others).map { try readFile(at: $0, limit: 1 << 20) }
    var chance = SeededGenerator(state: 20)
    for round in 0..<3000 {
      var text = texts[round % texts.count]
      for _ in 0..<Int.random(in: 1...8, using: &chance) { mutate(&text, using: &chance) }
      do {
        _ = try ConfigurationSource.parse([ConfigurationText(path: "f", bytes: text)], credentialsDirectory: nil)
      } catch {
        #expect(!error.sentences.isEmpty)
        #expect(error.sentences.allSatisfy { $0.hasPrefix("f:") && !$0.hasControlCharacters })
      }
    }
  }

  private func examples() throws -> [String] {
    try FileManager.default.contentsOfDirectory(atPath: "\(root)/config/examples").sorted()
      .filter { $0.hasSuffix(".toml") }.map { "\(root)/config/examples/\($0)" }
  }

  /// Changes, removes, repeats or puts in some bytes, mostly such as mean something to TOML.
  private func mutate(_ text: inout [UInt8], using chance: inout SeededGenerator) {
    guard !text.isEmpty else { return }
    let start = Int.random(in: 0..<text.count, using: &chance)
    let end = min(text.count, start + Int.random(in: 1...24, using: &chance))
    let telling = Array("[]{}=\"'.,#\n\r\t\\-+_0e:\u{0}\u{7f}\u{85}é🙂".utf8)
    switch Int.random(in: 0..<5, using: &chance) {
    case 0: text[start] = UInt8.random(in: 0...255, using: &chance)
    case 1: text[start] = telling[Int.random(in: 0..<telling.count, using: &chance)]
    case 2: text.removeSubrange(start..<end)
    case 3: text.insert(contentsOf: text[start..<end], at: Int.random(in: 0...text.count, using: &chance))
    default: text.insert(telling[Int.random(in: 0..<telling.count, using: &chance)], at: start)
    }
  }
}

/// The same numbers in every run. Source: Steele, Lea and Flood, SplitMix64.
struct SeededGenerator: RandomNumberGenerator {
  var state: UInt64

  mutating func next() -> UInt64 {
    state &+= 0x9e37_79b9_7f4a_7c15
    var mixed = (state ^ (state >> 30)) &* 0xbf58_476d_1ce4_e5b9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94d0_49bb_1331_11eb
    return mixed ^ (mixed >> 31)
  }
}
