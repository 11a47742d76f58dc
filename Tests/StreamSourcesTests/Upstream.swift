import Foundation
import Testing

@testable import StreamSources

/// The HTTP server of `Server/server.py`, for as long as this value lives.
final class Upstream: Sendable {
  /// Where it serves.
  private struct Places: Decodable {
    let port: Int
    let otherPort: Int
    let securePort: Int
    let unixSocket: String
  }

  private let process: Process
  private let input = Pipe()
  private let places: Places

  /// One for all tests, ended when this process is.
  static let shared = Result { try Upstream() }

  init() throws {
    setenv("no_proxy", "*", 1)
    let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
    process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    process.arguments = ["python3", folder.appendingPathComponent("Server/server.py").path]
    let output = Pipe()
    process.standardInput = input
    process.standardOutput = output
    try process.run()
    var line = Data()
    while !line.contains(0x0A) {
      let piece = output.fileHandleForReading.availableData
      try #require(!piece.isEmpty, "unable to start python3 with Server/server.py")
      line += piece
    }
    places = try JSONDecoder().decode(Places.self, from: line)
  }

  func url(_ path: String) -> String { "http://127.0.0.1:\(places.port)\(path)" }
  func otherURL(_ path: String) -> String { "http://127.0.0.1:\(places.otherPort)\(path)" }
  func secureURL(_ path: String) -> String { "https://localhost:\(places.securePort)\(path)" }
  var authority: String { "127.0.0.1:\(places.port)" }
  var secureAuthority: String { "localhost:\(places.securePort)" }
  var unixSocket: String { places.unixSocket }

  /// A redirect to `target`, as the path of a URL.
  static func redirect(_ key: String, to target: String, _ more: String = "") -> String {
    let query = target.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? ""
    return "/redirect/\(key)?to=\(query)\(more)"
  }
}

/// A path's part that no other test has.
func uniqueKey() -> String { UUID().uuidString }
