import Testing

@testable import StreamServer

/// Expressions in the texts of a template's configuration.
struct TextExpansionTests {
  /// The text with the values oslo of city and 7 of day.
  private func expand(
    _ text: String, _ place: TextExpansion.Place, at index: Int = 0, parameters: [String: NameTemplate.Parameter] = [:]
  ) throws -> String {
    let template = try NameTemplate("weather/{city}/{day}", parameters: parameters)
    let expansion = TextExpansion(NameValues(["city", "day"], ["oslo", "7"]), of: template)
    return try expansion.expand(text, in: place, at: index) ?? "unchanged"
  }

  private func fault(
    _ text: String, _ place: TextExpansion.Place, at index: Int = 0, parameters: [String: NameTemplate.Parameter] = [:]
  ) -> String? {
    do {
      _ = try expand(text, place, at: index, parameters: parameters)
      return nil
    } catch {
      return (error as? NameTemplate.Fault)?.sentence
    }
  }

  @Test func valuesStandInPlaceOfExpressions() throws {
    #expect(try expand("{city}", .text) == "oslo")
    #expect(try expand("Weather in {city} on {day}, {city}", .text) == "Weather in oslo on 7, oslo")
    #expect(try expand("{city}{day}", .text) == "oslo7")
    #expect(try expand("no expression", .text) == "unchanged")
  }

  @Test(arguments: [
    "{", "}", "{}", "{ city }", "{1}", "{\"city\"}", "{city", "{ci ty}", "{-city}", "{a:b}", "${}", "{,}", "{city,}",
  ])
  func bracesAroundAnythingElseAreThemselves(text: String) throws {
    #expect(try expand(text, .text) == "unchanged")
    #expect(try expand(text + "{city}", .text) == text + "oslo")
    #expect(try expand("[\(text)] {city}", .text) == "[\(text)] oslo")
  }

  @Test(arguments: [
    ("{citi}", "unknown parameter {citi}; did you mean {city}?"),
    ("{City}", "unknown parameter {City}; did you mean {city}?"),
    ("{country}", "unknown parameter {country}; expected {city} or {day}, or { country } for the text itself"),
    ("{+city}", "expected {city} in place of {+city}"),
    ("{#city}", "expected {city} in place of {#city}"),
    ("{?city}", "expected {city} in place of {?city}"),
    ("{/city}", "expected {city} in place of {/city}"),
    ("{city*}", "expected {city} in place of {city*}"),
    ("{city:3}", "expected {city} in place of {city:3}"),
    ("{city,day}", "expected {city}{day} in place of {city,day}"),
  ])
  func anExpressionOfAnotherFormIsAnErrorEverywhere(text: String, sentence: String) {
    for place in [TextExpansion.Place.text, .json, .match] { #expect(fault("a=\(text)", place) == sentence) }
    #expect(fault("user:\(text)", .rule) == sentence)
    #expect(fault("a\(text)", .word, at: 1) == sentence)
  }

  @Test func aTextWithoutExpressionsHasNone() throws {
    #expect(fault("a{city}", .fixed) == "expected no expression in this text, got {city}")
    #expect(fault("a{?city}", .fixed) == "expected no expression in this text, got {city}")
    #expect(try expand("a{other}", .fixed) == "unchanged")
    #expect(try expand("{city}, {city: .x}", .program) == "unchanged")
  }

  @Test(arguments: [
    ("https://h/{city}/{day}.json", "https://h/oslo/7.json"), ("https://h{/city}{/day}", "https://h/oslo/7"),
    ("https://h{?city}{&day}", "https://h?city=oslo&day=7"), ("https://h/a{?city}", "https://h/a?city=oslo"),
    ("https://h/a?b=c{&city}", "https://h/a?b=c&city=oslo"), ("https://h/a?b={city}", "https://h/a?b=oslo"),
    ("wss://h:1/{city}?a=/{day}", "wss://h:1/oslo?a=/7"), ("https://[::1]/%20{city}", "https://[::1]/%20oslo"),
    ("https://h/{city}#a", "https://h/oslo#a"), ("https://h?{city}", "https://h?oslo"),
  ])
  func aURLHasExpressionsInItsPathAndItsQuery(text: String, url: String) throws {
    #expect(try expand(text, .url) == url)
  }

  @Test(arguments: [
    ("https://{city}/", "expected {city} in the path or the query of the URL only"),
    ("https://h.{city}/", "expected {city} in the path or the query of the URL only"),
    ("https://h:{day}/", "expected {day} in the path or the query of the URL only"),
    ("https://{city}@h/", "expected {city} in the path or the query of the URL only"),
    ("https://h{city}", "expected {city} in the path or the query of the URL only"),
    ("https://h{&city}", "expected {&city} in the path or the query of the URL only"),
    ("{city}://h/", "expected {city} in the path or the query of the URL only"),
    ("{/city}", "expected {/city} in the path or the query of the URL only"),
    ("https:/{/city}", "expected {/city} in the path or the query of the URL only"),
    ("https://h/#{city}", "expected {city} in the path or the query of the URL only"),
    ("https://h#{?city}", "expected {?city} in the path or the query of the URL only"),
    ("https://h/a{&city}", "expected {?city} in place of {&city}: the URL has no \"?\" before it"),
    ("https://h/a?b{?city}", "expected {&city} in place of {?city}: the URL has a \"?\" before it"),
    ("https://h{?city}{?day}", "expected {&day} in place of {?day}: the URL has a \"?\" before it"),
    ("https://h/%{day}", "expected two digits after the \"%\" before {day}"),
    ("https://h/%2{day}", "expected two digits after the \"%\" before {day}"),
    ("https://h/{+city}", "expected {city} in place of {+city}"),
    ("https://h{?city,day}", "expected {?city}{?day} in place of {?city,day}"),
    ("https://h{/city*}", "expected {/city} in place of {/city*}"),
    ("https://h/{citi}", "unknown parameter {citi}; did you mean {city}?"),
  ])
  func noExpressionChangesTheHostOfAURL(text: String, sentence: String) { #expect(fault(text, .url) == sentence) }

  @Test(arguments: [
    (#"{"subscribe":"{city}"}"#, #"{"subscribe":"oslo"}"#), (#"["a.{city}.b", {}]"#, #"["a.oslo.b", {}]"#),
    (#"{"a":"\"{city}\\"}"#, #"{"a":"\"oslo\\"}"#), (#" "{city}" "#, #" "oslo" "#),
    (#"{"{city}":1}"#, #"{"oslo":1}"#), ("{\"a\":\"{day}\"}\n[\"{day}\"]", "{\"a\":\"7\"}\n[\"7\"]"),
    ("SUBSCRIBE {city}\n", "SUBSCRIBE oslo\n"), ("{day}", "7"), ("[{city}] hello", "[oslo] hello"),
  ])
  func aJSONTextHasExpressionsInItsStrings(text: String, expanded: String) throws {
    #expect(try expand(text, .json) == expanded)
  }

  @Test(arguments: [
    #"{"a":{day}}"#, #"["a",{day}]"#, #"{"a":"b{city}","c":-{day}}"#, #"["a\\",1{day}]"#, #"["\\\"",{day}]"#,
  ])
  func anExpressionOutsideOfAStringIsAnError(text: String) {
    #expect(fault(text, .json)?.hasSuffix("within a string of the JSON text") == true)
  }

  @Test func anArgumentBeginsWithAnExpressionOnlyIfNoValueBeginsWithAHyphen() throws {
    let sentence =
      "expected values of city that cannot begin with \"-\", as {city} begins an argument; "
      + "parameters.city.characters restricts them"
    #expect(fault("{city}", .word, at: 1) == sentence && fault("{city}/x", .word, at: 2) == sentence)
    #expect(fault("{city}", .word, at: 1, parameters: ["city": .init(values: ["a", "-b"])]) == sentence)
    #expect(try expand("{city}", .word, at: 1, parameters: ["city": .init(values: ["a", "b-"])]) == "oslo")
    let letters = NameTemplate.Parameter(characters: try #require(NameCharacters("a-z")))
    #expect(try expand("{city}{day}", .word, at: 1, parameters: ["city": letters]) == "oslo7")
    #expect(try expand("--city={city}", .word, at: 1) == "--city=oslo")
    #expect(try expand("-{city}", .word, at: 1) == "-oslo")
    #expect(fault("/bin/{city}", .word) == "expected a program without an expression, got {city}")
  }

  @Test func aRuleHasAnExpressionInTheNameOnly() throws {
    #expect(try expand("user:{city}", .rule) == "user:oslo")
    #expect(try expand("group:team-{city}", .rule) == "group:team-oslo")
    for text in ["{city}", "uid:{day}", "{city}:user:", "*{city}", "xuser:{city}"] {
      #expect(fault(text, .rule)?.hasSuffix("behind \"user:\" or \"group:\" only") == true, "\(text)")
    }
  }

  @Test func aMatchHasAnExpressionInTheValueOnly() throws {
    #expect(try expand("_SYSTEMD_UNIT={city}@{day}.service", .match) == "_SYSTEMD_UNIT=oslo@7.service")
    for text in ["{city}=a", "{city}", "A{city}=b"] {
      #expect(fault(text, .match)?.hasSuffix("behind \"=\" only") == true, "\(text)")
    }
  }
}
