import StreamServer
import Testing

@testable import streamd

private let http = "together = { as = \"symbols\", route = \".symbol\" }\nevery = \"1s\""
private let messages =
  "subscribe = '[\"t.{symbol*}\"]'\nunsubscribe = '[\"-t.{symbol*}\"]'\ntogether = { route = \".s\" }"

/// `together`: one upstream for all streams of a template.
struct ConfigurationTogetherTests {
  private func template(_ text: String, name: String = "p/{symbol}") throws -> Configuration.Template {
    try #require(parse("[streams.\"\(name)\".\(text)").templates.first)
  }

  @Test func allStreamsHaveOneConfiguration() throws {
    let template = try template("http]\nurl = \"http://h/q{?symbols}\"\n\(http)")
    #expect(template.copiesSample)
    let section = try #require(template.sample.source.section as? Configuration.HTTP)
    #expect(section.url == "http://h/q{?symbols}" && section.isTogether)
    #expect(section.together == .init(parameter: "symbol", list: "symbols", route: ".symbol"))
  }

  @Test func otherParametersAreThoseOfAStream() throws {
    let template = try template(
      "http]\nurl = \"http://h/{market}?x=1{&symbols}\"\ntogether.parameter = \"symbol\"\n"
        + "together.most = 7\ntogether.as = \"symbols\"\ntogether.route = \".symbol\"\nevery = \"1s\"",
      name: "p/{market}/{symbol}")
    guard case .values(let values) = template.name.match("p/xetra/ABC") else { throw Other() }
    let section = try #require(try template.stream(values).source.section as? Configuration.HTTP)
    #expect(section.url == "http://h/xetra?x=1{&symbols}" && section.together?.most == 7)
  }

  private struct Other: Error {}

  @Test func messagesHaveThePlaceOfTheValues() throws {
    let template = try template("websocket]\nurl = \"ws://h/\"\n\(messages)\npace = \"5/s\"")
    let socket = try #require(template.sample.source.section as? Configuration.WebSocket)
    #expect(socket.subscribe == "[\"t.{symbol*}\"]" && socket.pace == 5 && socket.together?.most == 100)
  }

  @Test(arguments: [
    (
      "http]\nurl = \"http://h/q{?symbol}\"\n\(http)",
      "http.url: expected all values together: {?symbols} in the URL, or {symbol*} in the body"
    ),
    (
      "http]\nurl = \"http://h/q\"\nevery = \"1s\"\ntogether.route = \".a\"",
      "expected all values together: as, such as"
    ),
    ("http]\nurl = \"http://{symbols}/q\"\n\(http)", "expected {symbols} in the path or the query of the URL only"),
    ("http]\nurl = \"http://h/q{&symbols}\"\n\(http)", "expected {?symbols} in place of {&symbols}"),
    (
      "http]\nurl = \"http://h/q{?symbols}\"\nheaders.a = \"{symbol}\"\n\(http)",
      "expected no {symbol} in this text, which is for all values together"
    ),
    (
      "http]\nurl = \"http://h/q{?symbols}\"\n\(http)\npace = \"1/s\"",
      "http.pace: expected pace only with together and stream"
    ),
    (
      "http]\nurl = \"http://h/q{?symbols}\"\ntogether = { as = \"symbols\", route = \".a\" }\nevery = { min = \"1s\", max = \"2s\" }",
      "http.every: expected one time with together"
    ),
    ("http]\nurl = \"http://h/q{?symbols}\"\nevery = \"1s\"\ntogether = { as = \"symbols\" }", "expected route"),
    (
      "http]\nurl = \"http://h/q{?symbols}\"\nevery = \"1s\"\ntogether = { as = \"symbols\", route = \".[\" }",
      "together.route: not a jq program"
    ),
    (
      "http]\nurl = \"http://h/q{?symbols}\"\nevery = \"1s\"\ntogether = { as = \"symbols\", route = \"$symbol\" }",
      "together.route: expected no $symbol"
    ),
    (
      "http]\nurl = \"http://h/q{?symbols}\"\nevery = \"1s\"\ntogether = { as = \"symbol\", route = \".a\" }",
      "together.as: expected another name than that of a parameter"
    ),
    (
      "http]\nurl = \"http://h/q{?symbols}\"\nevery = \"1s\"\ntogether = { as = \"symbols\", route = \".a\", refused = \".b\" }",
      "expected no refused in http.together"
    ),
    (
      "http]\nurl = \"http://h/q{?symbols}\"\n\(http)\ncursor = { link = \"next\" }",
      "http.cursor: expected cursor only with requests of each stream"
    ),
    (
      "http]\nurl = \"http://h/q{?symbols}\"\n\(http)\n[streams.\"p/{symbol}\"]\noverflow = \"block\"",
      "overflow: expected overflow = \"drop\" with http.together"
    ),
    (
      "websocket]\nurl = \"ws://h/\"\nsubscribe = '[\"{symbol*}\"]'\ntogether.route = \".s\"",
      "subscribe: expected unsubscribe with subscribe"
    ),
    (
      "websocket]\nurl = \"ws://h/\"\nsubscribe = 'x'\nunsubscribe = 'y'\ntogether.route = \".s\"",
      "subscribe: expected {symbol*} in a string in an array"
    ),
    (
      "websocket]\nurl = \"ws://h/\"\nsubscribe = '[\"{symbol*}\"]'\nunsubscribe = '{symbol}'\ntogether.route = \".s\"",
      "expected a star in both or in none"
    ),
    ("websocket]\nurl = \"ws://h/{symbol}\"\n\(messages)", "url: expected {symbol} in subscribe"),
    ("websocket]\nurl = \"ws://h/\"\nsend = ['{symbol}']\n\(messages)", "send: expected {symbol} in subscribe"),
    (
      "websocket]\nurl = \"ws://h/\"\nsubscribe = '[\"{symbol*}\(String(repeating: "x", count: 99))\"]'\n"
        + "unsubscribe = '[\"{symbol*}\"]'\ntogether = { route = \".s\", most = 10000 }",
      "subscribe: expected at most 2MiB with the values"
    ),
    ("websocket]\nurl = \"ws://h/\"\n\(messages)\npace = \"10\"", "expected a pace from \"1/s\" to \"10000/s\""),
    ("websocket]\nurl = \"ws://h/\"\nsubscribe = '[\"a\"]'", "subscribe: expected subscribe only with together"),
  ])
  func mistakesAreNamed(text: String, sentence: String) {
    let found = errors("[streams.\"p/{symbol}\".\(text)")
    #expect(found.contains { $0.contains(sentence) }, "\(found)")
  }

  @Test func itIsForTemplatesOnly() {
    let found = errors("[streams.p.http]\nurl = \"http://h/\"\nevery = \"1s\"\ntogether.route = \".a\"")
    #expect(
      found.count == 1 && found[0].contains("expected together only with a name that has an expression"), "\(found)")
    let others = errors(
      "[streams.\"p/{a}/{b}\".http]\nurl = \"http://h/{?as}\"\nevery = \"1s\"\ntogether = { route = \".a\", as = \"as\" }"
    )
    #expect(others.contains { $0.contains("expected parameter, such as parameter = \"a\"") }, "\(others)")
  }
}
