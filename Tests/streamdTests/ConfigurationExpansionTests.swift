import Events
import StreamServer
import Testing

@testable import streamd

/// The texts of a template that have expressions, and those that have none.
struct ConfigurationExpansionTests {
  /// The stream t/oslo/7 of a template with this table.
  private func stream(_ text: String) throws -> Configuration.Stream {
    let configuration = try parse("[streams.\"t/{city}/{day}\"]\n\(text)")
    let template = try #require(configuration.templates.first)
    return try template.stream(NameValues(["city", "day"], ["oslo", "7"]))
  }

  private func section<Section: SourceSection>(_ text: String, _ kind: Section.Type = Section.self) throws -> Section {
    try #require(try stream(text).source.section as? Section)
  }

  /// The errors of a template with this table, without their places.
  private func sentences(_ text: String) -> [String] {
    errors("[streams.\"t/{city}/{day}\"]\n\(text)").map { sentence in
      sentence.split(separator: ": ", maxSplits: 1).last.map {
        String($0.dropFirst(#"streams."t/{city}/{day}"."#.count))
      } ?? ""
    }
  }

  @Test func requestsHaveExpressionsInTheirPathQueryAndHeaders() throws {
    let http: Configuration.HTTP = try section(
      """
      [streams."t/{city}/{day}".http]
      url = "https://h{/city}{?day}"
      every = "1s"
      query = { c = "{city}" }
      headers = { X-Day = "day {day}" }
      """)
    #expect(http.url == "https://h/oslo?day=7" && http.query == [.init(name: "c", value: .plain("oslo"))])
    #expect(http.headers == [.init(name: "X-Day", value: .plain("day 7"))])
    let socket: Configuration.WebSocket = try section(
      """
      [streams."t/{city}/{day}".websocket]
      url = "wss://h/{city}"
      send = ['{"a":"{city}"}', "SUB {day}", { text = "{city}", after = ".a == $city" }]
      heartbeat = { send = "ping {day}", every = "5s" }
      answer = [{ to = ".ping == $day", with = "{pong: $city}" }]
      """)
    #expect(socket.http.url == "wss://h/oslo" && socket.answers == [.init(to: ".ping == $day", with: "{pong: $city}")])
    #expect(
      socket.messages == [
        .init(text: .plain(#"{"a":"oslo"}"#)), .init(text: .plain("SUB 7")),
        .init(text: .plain("oslo"), after: ".a == $city"),
      ])
    #expect(socket.heartbeat?.text == .plain("ping 7"))
  }

  @Test func commandsHaveExpressionsInTheirArguments() throws {
    let exec: Configuration.Exec = try section(
      "exec = { command = [\"sensor\", \"--city={city}\", \"{ day }\"], environment = { CITY = \"{city}\" } }")
    #expect(exec.command == ["sensor", "--city=oslo", "{ day }"])
    #expect(exec.environment == [.init(name: "CITY", value: .plain("oslo"))])
  }

  @Test func otherSourcesHaveExpressionsInWhatTheySelect() throws {
    let journal: Configuration.JournalEntries = try section("journal.match = [\"_SYSTEMD_UNIT=getty@{city}.service\"]")
    #expect(journal.matches == ["_SYSTEMD_UNIT=getty@oslo.service"])
    let lines: Configuration.Socket = try section("socket = { address = \"tcp:h:1\", send = [\"SUB {city}\\n\"] }")
    #expect(lines.messages == [.plain("SUB oslo\n")])
    let base = "[streams.\"b/{x}\"]\npublish = true\n"
    let configuration = try parse(
      """
      \(base)
      [streams."t/{city}/{day}"]
      of = ["b/{city}"]
      where = { "/city" = "{city}", "/day" = { in = ["{day}", 1] } }
      """)
    let stream = try configuration.templates[1].stream(NameValues(["city", "day"], ["oslo", "7"]))
    let derived = try #require(stream.source.section as? Configuration.Derived)
    #expect(derived.bases == ["b/oslo"])
    #expect(
      derived.filter.map { String(decoding: $0.json, as: UTF8.self) } == #"{"/city":"oslo","/day":{"in":["7",1]}}"#)
  }

  @Test(arguments: [
    "timer.every = \"{day}s\"", "http = { url = \"http://h/\", every = \"{day}s\" }",
    "http = { url = \"http://h/\", every = \"1s\", unix_socket = \"/run/{city}\" }",
    "http = { url = \"http://h/\", every = \"1s\", proxy = \"http://{city}:1\" }",
    "http = { url = \"http://h/\", every = \"1s\", user_agent = \"{city}\" }",
    "http = { url = \"http://h/\", every = \"1s\", server_name = \"{city}\" }",
    "http = { url = \"http://h/\", every = \"1s\", query = { \"{city}\" = \"1\" } }",
    "http = { url = \"http://h/\", every = \"1s\", ca_file = \"/{city}\" }",
    "http = { url = \"http://h/\", every = \"1s\", bearer = { credential = \"{city}\" } }",
    "http = { url = \"http://h/\", stream = \"{city}\" }",
    "websocket = { url = \"ws://h/\", subprotocols = [\"{city}\"] }",
    "websocket = { url = \"ws://h/\", ignore = [\"{city}\"] }",
    "socket.address = \"tcp:{city}:1\"", "socket.address = \"unix:/run/{city}\"", "serial.device = \"/dev/{city}\"",
    "streamd.address = \"unix:/run/{city}\"", "streamd = { address = \"unix:/run/x\", stream = \"{city}\" }",
    "journal.directory = \"/var/log/{city}\"", "journal.since = \"-{day}h\"", "publish = true\ntype = \"{city}/json\"",
    "publish = true\nkeep = \"{city}\"", "publish = true\nlinger = \"{day}s\"",
    "publish = true\nbuffer.bytes = \"{day}B\"",
    "publish = true\non_lag = \"{city}\"", "publish = true\nforget = \"{day}m\"",
    "publish = true\nparameters.city.characters = \"{city}\"", "publish = true\nparameters.city.values = [\"{city}\"]",
  ])
  func anyOtherTextHasNone(text: String) {
    let found = sentences(text)
    #expect(
      found.contains {
        $0.hasSuffix("expected no expression in this text, got {city}") || $0.hasSuffix("got {day}")
          || $0.contains("parameters.") || $0.contains("forget")
      }, "\(found)")
  }

  @Test(arguments: [
    (
      "http = { url = \"http://{city}/\", every = \"1s\" }",
      "http.url: expected {city} in the path or the query of the URL only"
    ),
    ("http = { url = \"http://h/{+city}\", every = \"1s\" }", "http.url: expected {city} in place of {+city}"),
    (
      "http = { url = \"http://h/{citi}\", every = \"1s\" }", "http.url: unknown parameter {citi}; did you mean {city}?"
    ),
    (
      "http = { url = \"http://h/\", every = \"1s\", headers = { a = \"{+city}\" } }",
      "http.headers.a: expected {city} in place of {+city}"
    ),
    ("exec.command = [\"{city}\"]", "exec.command: expected a program without an expression, got {city}"),
    (
      "exec.command = [\"x\", \"{city}\"]",
      "exec.command: expected values of city that cannot begin with \"-\", as {city} begins an argument; parameters.city.characters restricts them"
    ),
    (
      "websocket = { url = \"ws://h/\", send = ['{\"a\":{day}}'] }",
      "websocket.send: expected {day} within a string of the JSON text"
    ),
    ("journal.match = [\"{city}=a\"]", "journal.match: expected {city} behind \"=\" only"),
    ("publish = true\nread = [\"{city}\"]", "read: expected {city} behind \"user:\" or \"group:\" only"),
    ("publish = true\nwrite = [\"uid:{day}\"]", "write: expected {day} behind \"user:\" or \"group:\" only"),
    (
      "publish = true\ndescription = \"{country}\"",
      "description: unknown parameter {country}; expected {city} or {day}, or { country } for the text itself"
    ),
    ("of = [\"{+city}\"]", "of: expected {city} in place of {+city}"),
  ])
  func anExpressionThatAPlaceDoesNotPermitIsAnError(text: String, sentence: String) {
    #expect(sentences(text) == [sentence])
  }

  @Test func anErrorInAListHasTheLineOfItsElement() {
    #expect(
      errors("[streams.\"t/{x}\"]\nexec.command = [\n\"a\",\n\"{y}\"]") == [
        #"test.toml:4: streams."t/{x}".exec.command: unknown parameter {y}; did you mean {x}?"#
      ])
  }

  @Test func bracesOfAStreamWithoutParametersAreThemselves() throws {
    let stream = try parse("[streams.s]\npublish = true\ndescription = \"{city} {+x}\"").streams[0]
    #expect(stream.description == "{city} {+x}" && stream.template == nil)
  }

  @Test func aProgramHasItsParametersAsVariables() throws {
    let stream = try stream("publish = true\njq = \".a + $city\"\ndistinct = \".b + $day\"\nkey = \".c\"")
    #expect(stream.variables == ["city": "oslo", "day": "7"])
    #expect(try self.stream("publish = true\njq = \".city\"").variables.isEmpty)
    #expect(sentences("publish = true\njq = \"$country\"")[0].hasPrefix("jq: not a jq program: "))
    #expect(errors(inStream: "jq = \"$city\"")[0].contains("jq: not a jq program: "))
  }
}
