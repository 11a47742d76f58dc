import StreamProtocol
import StreamRuntime

import func HTTP.sha256

extension Configuration.Stream {
  /// Identifies the settings that determine the stream's events: its source and its pipeline. The hosts of a fleet
  /// compare this digest. A host with another one cannot lead the stream.
  ///
  /// The first 8 bytes of a SHA-256 digest, which is the same on all hosts and in all versions. A key of the
  /// configuration that is added later must therefore be left out while it has its default. The digest covers:
  ///
  /// - the source's kind; a timer's interval; a program's command, environment, interval, form of events and size limit;
  ///   the bases and the filter of a derived stream; the address, name, filter, token and size limit of a stream of another
  ///   streamd;
  /// - the URL of an HTTP source, its interval or format, form of events, headers, parameters, authorization, Unix
  ///   socket, size limit, User-Agent and redirects, its method, body and cursor; of a WebSocket the same as far as it has
  ///   it, what is sent, and the subprotocols;
  /// - a socket's address, what is sent, split and size limit; a serial port's device;
  /// - validate, jq, distinct, key, tombstone and throttle.
  ///
  /// The digest covers the name of a secret's credential, and the path of a body's file, but not the secret itself, which
  /// could be guessed from a digest. Nor does it cover what may differ between hosts that fetch the same: the stream's name
  /// (records have it); how events are described, stored, replayed and protected; when the source is active, its timeouts
  /// and pauses after failures, and the leeway of a timer; how an upstream is reached: proxy, authorities and client
  /// certificate.
  var definitionDigest: UInt64 {
    let text = definition.flatMap { [$0.key, $0.value] }.map { "\($0.utf8.count) \($0)" }.joined()
    return sha256(Array(text.utf8)).prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
  }

  /// The keys and values that the digest covers, in a fixed order, without keys that have their default.
  private var definition: [DefinitionField] {
    var fields = source.section.definition
    if let jq { fields.append(("jq", jq)) }
    switch distinct {
    case .no: break
    case .whole: fields.append(("distinct", "true"))
    case .by(let key): fields.append(("distinct", "by \(key)"))
    }
    if let key {
      fields.append(("key", key.key))
      if let tombstone = key.tombstone { fields.append(("tombstone", tombstone)) }
    }
    if let throttle { fields.append(("throttle", throttle.definition)) }
    if validate != .no { fields.append(("validate", validate.rawValue)) }
    return fields
  }
}
