import CReasons
import FoundationEssentials
import Testing

@testable import StreamProtocol

@Suite struct FailureReasonTests {
  @Test func theReasonsOfTheLibraryInCAreTheSame() {
    for reason in FailureReason.allCases {
      let name = c_reason_name(CInt(reason.rawValue)).map { String(cString: $0) }
      #expect(name == reason.name)
      let retries: [FailureReason.Retry] = [.never, .later, .reconnect]
      #expect(retries[Int(c_reason_retry(CInt(reason.rawValue)))] == reason.retry, "\(reason)")
    }
    #expect(FailureReason.allCases.map(\.rawValue) == Array(1...UInt16(FailureReason.allCases.count)))
    #expect(c_reason_name(CInt(FailureReason.allCases.count + 1)) == nil && c_reason_name(0) == nil)
  }

  @Test func theReasonsOfThePythonPackageAreTheSame() throws {
    let text = try Self.file("Sources/python/streamd/_errors.py")
    for reason in FailureReason.allCases {
      let name = reason.name.replacing("-", with: "_").uppercased()
      #expect(text.contains("\n    \(name) = \(reason.rawValue)\n"))
    }
  }

  @Test func theDocumentationHasEachReason() throws {
    let text = try Self.file("docs/WIRE.md")
    for reason in FailureReason.allCases {
      let meaning = reason.meaning
      let retry =
        switch reason.retry {
        case .never: "never"
        case .later: "later"
        case .reconnect: "new connection"
        }
      let row =
        "| \(reason.rawValue) | `\(reason.name)` | 0x\(String(meaning.code, radix: 16)) | \(meaning.status) | \(retry) |"
      #expect(text.contains("\n\(row) "), "docs/WIRE.md lacks: \(row)")
    }
  }

  private static func file(_ path: String) throws -> String {
    let project = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent()
    return try String(contentsOf: project.appendingPathComponent(path), encoding: .utf8)
  }

  @Test func anErrorHasTheNumberBesideTheCodeOfRSocket() {
    for reason in FailureReason.allCases {
      let code = reason.wireCode()
      #expect(code >> 16 == reason.meaning.code && (0x301...0xffff_fffe).contains(code))
      #expect(FailureReason(code: code, sentence: "streamd is stopping") == reason)
      #expect(c_reason_of_error(code, "streamd is stopping") == CInt(reason.rawValue))
    }
    #expect(FailureReason.stopping.wireCode(over: 0x102) == 0x0102_001c)
    #expect(FailureReason(code: 0x0203_ffff, sentence: "streamd is stopping") == nil)
  }

  /// Sentences of the last release, which it does not change any more.
  @Test(
    arguments: [
      (0x202, #"no stream named "s""#, FailureReason.noStream), (0x202, "no stream has a name of 300 bytes", .noStream),
      (0x202, #"uid 7 may not read "s""#, .mayNotRead),
      (0x202, #"token "a" may not write "s"; to admit it, add it to write of the token"#, .mayNotWrite),
      (0x202, #""s" does not accept values"#, .takesNoValues),
      (0x202, "uid 7 has 32 maps that it has not received, with 32 of 64 left", .tooManyMaps),
      (0x202, "the system does not pass descriptors at present", .noDescriptors),
      (0x202, #"too many views of "$stats""#, nil), (0x201, "anything", .failed),
      (0x301, "lagged: 3 events lost", .lagged),
      (0x203, "streamd is stopping", .stopping), (0x203, "streamd is restarting", .restarting),
      (0x203, "streamd restarts", .restarting),
      (0x203, "streamd restarts before the stream has stored all values", .restarting),
      (0x203, "an operator has ended this connection", .kicked),
      (0x102, "an operator has ended this connection", .kicked),
      (0x203, #"token "a" is not valid any more"#, .tokenRemoved), (0x203, #""s" is no longer served"#, .removed),
      (0x203, #""s" no longer accepts values"#, .takesNoMoreValues), (0x203, #""s" has ended"#, .ended),
      (0x203, #""s" was changed before it had stored all values"#, .valuesLost),
      (0x203, #"another publisher to "s" uses this name, or the stream is being changed"#, .nameInUse),
      (0x203, #""s" is not mapped any more"#, .mapRemoved), (0x203, "anything", nil),
      (0x204, "no event has the id 9 yet", .unknownPosition),
      (0x204, "no event has the id 9 yet: this host was given 5 s to receive it", .unknownPosition),
      (0x204, "no event has the position 9 yet", .unknownPosition),
      (0x204, #"value 3: a value of 9 bytes is too large for "s", whose limit is 8 bytes"#, .tooLarge),
      (0x204, "value 3: its fragments exceed the limit of 1048576 bytes for incomplete requests", .tooLarge),
      (0x204, #""s" is not mapped"#, .notMapped), (0x204, #""s" cannot be mapped over TCP"#, .notMappable),
      (0x204, "options must be a JSON object", nil), (0x003, "the token is not valid", .invalidToken),
      (0x003, "the server has 9 connections already (max_connections)", .tooManyConnections),
      (0x003, "streamd cannot start: its configuration has errors", .notConfigured),
      (0x101, "the fragments up to request 3 exceed the limit of 9 bytes", .requestTooLarge),
      (0x101, "uid 7 has more than 9 bytes of unprocessed data (max_input_per_user)", .tooMuchInput),
      (0x101, "a frame is malformed", nil), (0x999, "anything", nil), (0x203, "", nil),
    ] as [(UInt32, String, FailureReason?)])
  func aSentenceOfTheLastReleaseTellsTheReason(code: UInt32, sentence: String, reason: FailureReason?) {
    #expect(FailureReason(code: code, sentence: sentence) == reason)
    #expect(c_reason_of_error(code, sentence) == CInt(reason?.rawValue ?? 0))
  }

  @Test func reasonsAreAnnouncedByOneMemberOfAnObject() {
    #expect(FailureReason.areAnnounced(by: FailureReason.announcement))
    for (text, isAnnounced) in [
      (#" {"more": [1], "reasons": true}"#, true), (#"{"reasons":false}"#, false), (#"{"reasons":1}"#, false),
      ("", false), ("hello", false), ("[]", false), (#"{"reasons":true"#, false), ("true", false),
    ] {
      #expect(FailureReason.areAnnounced(by: Array(text.utf8)) == isAnnounced, "\(text)")
    }
    #expect(!FailureReason.areAnnounced(by: [UInt8](repeating: 0x20, count: 2000) + FailureReason.announcement))
  }
}
