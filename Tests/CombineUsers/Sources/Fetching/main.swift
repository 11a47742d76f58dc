// A program with a source of its own: StreamSources as a product.
import Reactive
import StreamSources

let (reports, sink) = AsyncStream<SourceReport>.makeStream()
let thread = try SourceThread()
try thread.start()
let poll = HTTPPoll(HTTPConfiguration(url: "ftp://127.0.0.1/"), every: .seconds(60))
let subscription = Source(poll, in: SourceContext(on: thread) { sink.yield($0) }).sink { batch in
  preconditionFailure("\(batch.count) events")
}
for await report in reports {
  guard case .failing(let sentence, attempt: 1, _) = report else { preconditionFailure("\(report)") }
  precondition(sentence.contains("not an http or https URL"), sentence)
  break
}
subscription.cancel()
print("StreamSources: a product of its own")
