import Foundation
import Testing

// Reads the sources: an operator without an entry in the table would not be tested against the contract.
@Suite struct OperatorTableTests {
  /// Not operators: they end a pipeline.
  private static let subscribing: Set = ["assign", "sink"]

  @Test func everyOperatorIsInTheTable() throws {
    let tests = URL(filePath: #filePath).deletingLastPathComponent()
    let library = tests.appending(path: "../../Sources/Reactive")
    let table = try ["OperatorTable.swift", "OperatorTable+Timed.swift"]
      .map { try String(contentsOf: tests.appending(path: $0), encoding: .utf8) }.joined()
    var operators: Set<String> = []
    let files = FileManager.default.enumerator(at: library, includingPropertiesForKeys: nil)
    for case let file as URL in try #require(files) where file.pathExtension == "swift" {
      let source = try String(contentsOf: file, encoding: .utf8)
      for block in source.matches(of: /(?m)^extension (?:Connectable)?Publisher\b[^{]*\{\n((?s).*?)^\}/) {
        operators.formUnion(block.1.matches(of: /public func `?(\w+)/).map { String($0.1) })
      }
    }
    #expect(operators.count > 70)
    for name in operators.subtracting(Self.subscribing).sorted() {
      #expect(table.contains(".\(name)(") || table.contains(".\(name) {"), "\(name)")
    }
  }
}
