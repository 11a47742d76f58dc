import Dispatch
import Reactive
import StreamClient
import StreamRuntime

extension Session {
  /// Publishes one event.
  func publish(_ data: [UInt8], to name: String, _ publication: Arguments.Publication) throws(Stop) {
    let sink = sink(to: name, publication)
    Just(data).subscribe(sink)
    try waitForConfirmation()
  }

  /// Publishes standard input, one event per line.
  func publishLines(to name: String, _ publication: Arguments.Publication) throws(Stop) {
    let sink = sink(to: name, publication)
    let failure = Locked<Stop?>(nil)
    let done = DispatchSemaphore(value: 0)
    // On a separate thread: when the daemon refuses, the program ends even if this thread blocks on input.
    DispatchQueue(label: "standard input").async {
      let stop = InputLines().read(into: sink)
      failure.withLock { $0 = stop }
      done.signal()
    }
    try waitForConfirmation()
    done.wait()
    if let stop = failure.withLock({ $0 }) { throw stop }
  }

  private func sink(to name: String, _ publication: Arguments.Publication) -> RemoteSink {
    let publisher =
      publication.reconnects ? PublisherName(publication.publisher, reconnect: inbox.reconnectPolicy()) : nil
    let sink = connection.sink(to: name, as: publisher) { [inbox] completion in
      inbox.receive(completion: completion)
    }
    inbox.cancels(sink)
    return sink
  }

  private func waitForConfirmation() throws(Stop) {
    while true {
      let end = inbox.takeAll().end
      for notice in inbox.takeNotices() { Stop.say(notice) }
      if let end {
        if end == .done { return }
        throw end
      }
      _ = inbox.wait()
    }
  }
}
