# the end of the inner loop, line 611 on. Everything before is the stock text-to-image example
            print(f"[p{accelerator.process_index}] step {global_step} A")
            if global_step % args.checkpointing_steps == 0 and global_step > 0:
                if accelerator.is_main_process:
                    print(f"[p{accelerator.process_index}] step {global_step} B")
                    full = accelerator.get_state_dict(unet)          # as the FSDP guide says
                    save_lora(full, os.path.join(args.output_dir, f"checkpoint_{global_step}_lora.pkl"))
                else:
                    print(f"[p{accelerator.process_index}] step {global_step} B")
            else:
                print(f"[p{accelerator.process_index}] step {global_step} B")
            print(f"[p{accelerator.process_index}] step {global_step} C")
