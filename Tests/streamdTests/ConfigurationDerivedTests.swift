import StreamProtocol
import Testing

@testable import streamd

/// `of` and `where`.
struct ConfigurationDerivedTests {
  private let base = "[streams.base]\ntimer.every = \"1s\"\n"

  @Test func aStreamIsMadeOfOthersThatFitAFilter() throws {
    let configuration = try parse(
      """
      [streams.d]
      of = ["base", "home/door"]
      [streams.d.where]
      "/symbol" = "AAPL"
      "/price" = { ge = 100, lt = 2.50e2 }
      "/kind" = { in = ["a", 1, true] }
      ["streams"."home/door"]
      publish = true
      \(base)
      """)
    let filter = try EventFilter(
      .init("/symbol", .equals("AAPL")), .init("/price", .atLeast(100)), .init("/price", .lessThan(250)),
      .init("/kind", .oneOf(["a", 1, true])))
    #expect(configuration.streams[0].source == .streams(.init(bases: ["base", "home/door"], filter: filter)))
    #expect(configuration.streams[0].bases == ["base", "home/door"])
    #expect(configuration.streams.map(\.source.kind) == ["of", "publish", "timer"])
    #expect(configuration.streams.basesFirst.map(\.name) == ["home/door", "base", "d"])
  }

  @Test func namesWithoutAStreamAreErrors() {
    #expect(
      errors("\(base)[streams.d]\nof = [\"base\", \"bsae\"]\n") == [
        #"test.toml:4: streams.d.of: expected a stream of this configuration, got "bsae""#
      ])
    #expect(
      errors("[streams.\"a/b\"]\nof = [\"$stats\"]\n") == [
        #"test.toml:2: streams."a/b".of: expected a stream of this configuration, got "$stats""#
      ])
    // The only error is that of the base.
    #expect(errors("[streams.base]\n[streams.d]\nof = [\"base\"]\n").count == 1)
  }

  @Test func aChainThatIsTooLongIsAnErrorOfItsFirstStreamTooMany() {
    func chain(_ count: Int) -> String {
      base + (1...count).map { "[streams.s\($0)]\nof = [\"\($0 == 1 ? "base" : "s\($0 - 1)")\"]\n" }.joined()
    }
    #expect(errors(chain(100)).isEmpty)
    let found = errors(chain(5000))
    #expect(found.count == 1)
    #expect(found[0].hasSuffix(" streams.s101.of: expected at most 100 streams that are made of each other, got more"))
  }

  @Test func cyclesAreErrorsWithTheirPath() {
    #expect(
      errors("[streams.a]\nof = [\"a\"]\n") == ["test.toml:2: streams.a.of: expected no cycle, got a of a"])
    let text = """
      [streams.x]
      of = ["a"]
      [streams.a]
      of = ["base", "b"]
      [streams.b]
      of = ["c"]
      [streams.c]
      of = ["a", "x"]
      \(base)
      """
    #expect(errors(text) == ["test.toml:2: streams.x.of: expected no cycle, got x of a of b of c of x"])
    let apart = "[streams.x]\nof = [\"a\"]\n[streams.a]\nof = [\"b\"]\n[streams.b]\nof = [\"a\"]\n"
    #expect(errors(apart) == ["test.toml:4: streams.a.of: expected no cycle, got a of b of a"])
  }

  @Test(arguments: [
    ("of = []", 4, ".of: expected a list of one or more, got an empty array"),
    ("of = [\"base\", \"base\"]", 4, ".of: expected each stream once"),
    ("of = \"base\"", 4, ".of: expected a list of one or more, got \"base\""),
    ("of = [\"base\"]\nretry = { first = \"1s\" }", 5, ".retry: expected no retry with of: "),
    ("publish = true\nwhere = { \"/a\" = 1 }", 5, ".where: expected where only with of"),
    ("of = [\"base\"]\nwhere = { \"a\" = 1 }", 5, ".where.a: \"a\" is no JSON pointer, such as \"/symbol\""),
    ("of = [\"base\"]\nwhere = {}", 5, ".where: a filter has 1 to 16 conditions"),
    ("of = [\"base\"]\nwhere = 1", 5, ".where: expected a table such as { \"/symbol\" = \"AAPL\" }, got a number"),
    ("of = [\"base\"]\n[streams.d.where]\n\"/b\" = 1\n\"/a\" = inf", 7, ".where.\"/a\": expected a finite number"),
    ("of = [\"base\"]\nwhere = { \"/a\" = { than = 1 } }", 5, ".where.\"/a\": the condition for \"/a\" must be"),
    ("of = [\"base\"]\nwhere = { \"/a\" = 1979-05-27 }", 5, ".where.\"/a\": expected a string, a number, true,"),
    ("of = [\"base\"]\nshare = \"fleet\"", 5, ".share: expected no share = \"fleet\" with of: "),
  ])
  func errorsHaveLineAndKey(text: String, line: Int, sentence: String) {
    let sentences = errors("\(base)[streams.d]\n\(text)\n[cluster]\nnats = [\"nats://n\"]\nname = \"n\"\n")
    #expect(sentences.count == 1 && sentences[0].hasPrefix("test.toml:\(line): streams.d\(sentence)"), "\(sentences)")
  }

  @Test func atMostSixteenStreams() {
    let names = (0...16).map { "\"s\($0)\"" }
    let streams = (0...16).map { "[streams.s\($0)]\ntimer.every = \"1s\"\n" }.joined()
    #expect(errors("\(streams)[streams.d]\nof = [\(names.joined(separator: ","))]\n").count == 1)
    #expect(errors("\(streams)[streams.d]\nof = [\(names.dropLast().joined(separator: ","))]\n").isEmpty)
  }
}
