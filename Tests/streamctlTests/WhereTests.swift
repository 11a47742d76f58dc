import StreamProtocol
import Testing

@testable import streamctl

/// The conditions of `--where`.
struct WhereTests {
  @Test(
    arguments: [
      (["/symbol=AAPL"], #"{"/symbol":"AAPL"}"#), (["/a=5"], #"{"/a":5}"#), (["/a=\"5\""], #"{"/a":"5"}"#),
      (["/a=true"], #"{"/a":true}"#), (["/a=null"], #"{"/a":null}"#), (["/a="], #"{"/a":""}"#),
      (["/a=1,\"/b\":2"], #"{"/a":"1,\"/b\":2"}"#), (["/a=[1]"], #"{"/a":"[1]"}"#),
      (["/a={\"gt\":1}"], #"{"/a":"{\"gt\":1}"}"#), (["=7"], #"{"":7}"#), (["/a=b=c"], #"{"/a":"b=c"}"#),
      (["/a>1", "/a<2.5"], #"{"/a":{"gt":1,"lt":2.5}}"#), (["/a>=-1", "/a<=2e3"], #"{"/a":{"ge":-1,"le":2000}}"#),
      (["/a^=AA"], #"{"/a":{"prefix":"AA"}}"#), (["/a^=12"], #"{"/a":{"prefix":"12"}}"#),
      (["/a^=\"=\""], #"{"/a":{"prefix":"="}}"#), (["/a/b"], #"{"/a/b":{"exists":true}}"#),
      (["!/a"], #"{"/a":{"exists":false}}"#), (["/a=\u{e9}"], #"{"/a":"\#u{e9}"}"#),
      ([#"{"/b":{"in":[1,"x"]}}"#, "/a=1"], #"{"/a":1,"/b":{"in":[1,"x"]}}"#),
    ] as [([String], String)]) func conditionsBecomeAFilter(words: [String], json: String) throws
  {
    #expect(String(decoding: try EventFilter(words).json, as: UTF8.self) == json)
  }

  @Test(
    arguments: [
      (["/a==1"], "unknown operator =="), (["/a!=1"], "unknown operator !="), (["/a=>b"], "unknown operator =>"),
      (["/a=1e9999999999"], "option"), (["/a<x"], "compares with something that is no number"),
      (["a=1"], "\"a\" is no JSON pointer"),
      ([""], "empty"), (["!/a=1"], "\"!/a\" is no JSON pointer"), (["{"], "must be a JSON object"),
      (["/a=1", "/a=2"], "two conditions of one kind"), ([String](repeating: "/a", count: 17), "1 to 16 conditions"),
    ] as [([String], String)]) func aMistakeIsNamed(words: [String], part: String) throws
  {
    let stop = #expect(throws: Stop.self) { try EventFilter(words) }
    #expect(stop?.exitCode == 64 && stop?.message?.contains(part) == true, "\(stop?.message ?? "")")
  }
}
